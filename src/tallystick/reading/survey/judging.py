"""Summaries, verdicts and findings of every log below some paths, judged together.

In: paths and options. Out: an `Inspection`, an `Explanation` or a `Verification`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tallystick.reading.databases import Answered, whole_databases, with_other_logs
from tallystick.reading.names import log_name, names_apart
from tallystick.reading.results import (
    Explanation,
    Inspection,
    Summary,
    Verification,
    is_severe,
    summary_of,
)
from tallystick.reading.settled import Observer
from tallystick.reading.survey.logs import Paths, Progress, survey
from tallystick.records import Answer, Finding, Judgement, Part, Surroundings, Verdict
from tallystick.systems.findings import NOT_SAFE
from tallystick.systems.protocol import LogReading, ReadOptions


def explain(
    path: Paths,
    *,
    options: ReadOptions | None = None,
    progress: Progress | None = None,
    whole: bool = False,
) -> Explanation:
    """Return, per log below ``path``, what its engine would do and what the bytes prove.

    Args:
        path: a log, a folder or a tree of logs, a URL, or several of these.
        options: what readers have to know, as a time zone or a key.
        progress: called with the path of each log before it is read.
        whole: make the engine's part of each verdict while its log is watched for changes; else,
            where that lists every record, it is made when it is first asked for.

    Raises:
        LogUnreadableError: ``path`` cannot be read. What cannot be read below it is a finding.
        UnsupportedFormatError: no system of the logs has such a setting.
    """
    found = survey(path, options=options).refuse_unknown_settings()
    answer = Explanation(found.path, [], [], found.problems, found.others)

    def take(reading: LogReading) -> Verdict:
        verdict = reading.verdict()
        return replace(verdict, engine=dict(verdict.engine)) if whole else verdict

    gathered, names = found.gatherer(), list[str]()
    apart = names_apart(found.logs)
    for log in found.observers(progress):
        with found.guard(log.source):
            seen = log.observe(take)
            answer.findings.append(seen.findings)
            answer.logs.append(replace(seen.value, name=apart[log.source]))
            names.append(log_name(log.source))
            gathered.add(seen.reading, seen.findings, seen.value.judgement)
    answer.estate = gathered.judged(found.problems)
    if answer.estate is not None:
        answer.logs = [
            one.judged(answer.estate.logs.get(name, one.judgement))
            for name, one in zip(names, answer.logs, strict=True)
        ]
    answer.databases, answer.logs = whole_databases(answer.logs)
    return answer


def inspect(
    path: Paths, *, options: ReadOptions | None = None, progress: Progress | None = None
) -> Inspection:
    """Return a summary of every log below ``path``.

    Args and errors are those of `explain`.
    """
    found = survey(path, options=options).refuse_unknown_settings()
    logs: list[Summary] = []
    gathered = found.gatherer()
    for log in found.observers(progress):
        with found.guard(log.source):
            seen = log.observe(partial(summary_of, title=log.system.title))
            seen.value.findings = seen.findings
            logs.append(seen.value)
            gathered.add(seen.reading, seen.findings)
    estate = gathered.judged(found.problems)
    return Inspection(found.path, logs, found.problems, found.others, estate)


def verify(
    path: Paths, *, options: ReadOptions | None = None, progress: Progress | None = None
) -> Verification:
    """Return the findings of every log below ``path``.

    A log that `explain` does not call fine has one at least, and so has what a restart opens
    besides the log and does not fit. Args and errors are those of `explain`.
    """
    found = survey(path, options=options).refuse_unknown_settings()
    gathered = found.gatherer()
    of_logs: list[tuple[Observer, list[Finding], Judgement, bool]] = []
    answered = list[Answered]()
    for log in found.observers(progress):
        with found.guard(log.source):
            seen = log.observe(lambda reading: reading.verdict())
            own, agree = seen.value.judgement, not seen.value.differences
            of_logs.append((log, seen.findings, own, agree))
            answered.append((log.source.path, seen.value.surroundings, own))
            gathered.add(seen.reading, seen.findings, own)
    parts: dict[Part, Observer] = {}
    for (log, *_), (_, around, answer) in zip(of_logs, with_other_logs(answered), strict=True):
        parts = dict.fromkeys(_deciding(around, answer), log) | parts
    estate = gathered.judged(found.problems)
    findings = list(estate.findings) if estate is not None else []
    texts = {one.why for one in parts}
    # Not before all logs were read: what they say together may change the answer about one.
    for log, of_log, own, agree in of_logs:
        judgement = own if estate is None else estate.logs.get(log_name(log.source), own)
        safe = judgement.answer is Answer.SAFE and agree
        told = judgement is not own and judgement.answer is Answer.LOSES  # by all logs together
        findings += of_log
        findings += [_not_fitting(log, one) for one, of in parts.items() if of is log]
        if not (safe or told) and not any(map(is_severe, of_log)) and judgement.text not in texts:
            findings.append(_not_safe(log, judgement))
    return Verification(found.path, len(found.logs), findings + found.problems, estate)


def _not_safe(log: Observer, judgement: Judgement) -> Finding:
    build = log.system.findings_of(log_name(log.source))
    differs = ", but its engine and its bytes differ" if judgement.answer is Answer.SAFE else ""
    text = f"{judgement.words}{differs}: {judgement.text}"
    files = log.source.files
    return build(NOT_SAFE.code, text, file=files[0] if len(files) == 1 else log.source.path)


def _deciding(around: Surroundings | None, answer: Judgement) -> list[Part]:
    """Return the parts beside a log from which a refusal, a loss or the answer follows."""
    if around is None:
        return []
    grave = (Answer.REFUSES, Answer.LOSES)
    return [
        one for one in around.parts
        if one.answer in grave
        or one == around.other_log
        or (one.answer is not Answer.SAFE and one.why == answer.text)
    ]  # fmt: skip


def _not_fitting(log: Observer, part: Part) -> Finding:
    """Return what is found about a part beside a log, with where it is, or would be."""
    advice = "Use it and the log from one copy; tallystick explain says what else is beside them"
    if part.answer is Answer.CANNOT_TELL:
        advice = f"It would be decided by {part.decided_by or part.path}"
    elif not part.there:
        advice = "Look for it where it was moved, or put it back from the copy of the log's moment"
    text = f"{Judgement(part.answer).words}: {part.why}"
    build = log.system.findings_of(log_name(log.source))
    return build(NOT_SAFE.code, text, file=part.path, advice=advice)
