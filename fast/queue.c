/* Group commit: who waits for which group, and who leads.

   It does what tallystick/storage/group/queue.py does, for threads and asyncio tasks, and has the
   same interface; the rules I1-I6 stand in tallystick/storage/group/writer.py. It knows no format
   and does no input or output: the items of lone callers go to the end of a native log, if it has one.

   The interpreter lock guards everything here: no function gives it up between two statements that
   belong together. It is given up in two functions, to wait and to write, and by callbacks.

   Waking. A finished group has a waiter per thread. To wake them all at once has each of them wake
   twice, once for the group and once for the interpreter lock. So they form a chain: a thread that
   was woken goes on, submits again, and wakes the next one as it goes to sleep, when it gives up
   the interpreter lock. The thread that led is the last of the chain and watches it: if no one is
   woken for STALL_NS, and for RELAY groups from then on, each wakes the next one as it wakes
   itself.

   To wake a thread takes the kernel longer than that thread then needs the interpreter lock. So as
   a thread goes to sleep, it also wakes the one after the next, ahead of its turn: that one looks
   for its call AHEAD_TURNS times, and then sleeps again. No thread is woken ahead where there is
   only one processor, and for AHEAD_PAUSE groups after one that slept again. */

#include "core.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STALL_NS 200000    /* time without a wake-up after which a chain is stalled */
#define RELAY 256          /* groups without a watched chain after that */
#define AHEAD_TURNS 200    /* looks of a thread that was woken ahead of its turn, some 10 us */
#define AHEAD_PAUSE 16     /* groups without a thread woken ahead after one that slept again */
#define WAIT_FLUSHES 2.0   /* longest wait of a leader, in durations of the last flush ... */
#define WAIT_SECONDS 0.005 /* ... and in seconds */

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("yield")
#else
#define RELAX() (void)0
#endif

/* Call a method of the writer. */
#define ASK(queue, method, ...)                                                                    \
    PyObject_CallMethodObjArgs((queue)->policy, word[N_##method], ##__VA_ARGS__, NULL)

/* -- waiters ------------------------------------------------------------------------------- */

typedef struct Waiter {
    struct Waiter *previous, *next;
    struct List *list; /* where it is; NULL once another thread has taken it out to call it */
    uint32_t called;   /* futex word: ASLEEP and so on */
    char counted;      /* in the queue's `pending` */
} Waiter;

typedef struct List {
    Waiter *first, *last;
    Py_ssize_t count;
} List;

static void push(List *list, Waiter *waiter) {
    waiter->list = list;
    waiter->next = NULL;
    waiter->previous = list->last;
    *(list->last ? &list->last->next : &list->first) = waiter;
    list->last = waiter;
    list->count++;
}

static void unlink_waiter(Waiter *waiter) {
    List *list = waiter->list;
    *(waiter->previous ? &waiter->previous->next : &list->first) = waiter->next;
    *(waiter->next ? &waiter->next->previous : &list->last) = waiter->previous;
    list->count--;
    waiter->list = NULL;
}

static Waiter *pop(List *list) {
    Waiter *waiter = list->first;
    if (waiter) unlink_waiter(waiter);
    return waiter;
}

static int futex(uint32_t *word, int operation, uint32_t value, const struct timespec *until) {
    return (int)syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, until, NULL,
                        FUTEX_BITSET_MATCH_ANY);
}

enum { ASLEEP, AWAKE, ASLEEP_AGAIN, IS_CALLED }; /* AWAKE: woken ahead, and looking */

static int exchange(uint32_t *word, uint32_t from, uint32_t to) {
    return __atomic_compare_exchange_n(word, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static void wake(uint32_t *word) { futex(word, FUTEX_WAKE, 1, NULL); }

/* The waiter may be gone after the exchange: its address is then only a number to the kernel. */
static void call(Waiter *waiter) {
    uint32_t *word = &waiter->called;
    if (__atomic_exchange_n(word, IS_CALLED, __ATOMIC_ACQ_REL) != AWAKE) wake(word);
}

/* Return the value of the word, after some looks if the thread was woken ahead. */
static uint32_t look_at(uint32_t *word) {
    uint32_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    for (int turn = 1; value == AWAKE; turn++) {
        if (turn > AHEAD_TURNS && exchange(word, AWAKE, ASLEEP_AGAIN)) return ASLEEP_AGAIN;
        RELAX();
        value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    }
    return value;
}

/* -- objects ------------------------------------------------------------------------------- */

#define BUCKETS 16 /* of the durations of flushes: tallystick/storage/group/counters.py */
typedef struct {
    OBJECT PyObject *policy;
    PyObject *groups; /* unsynced ones, dirty ones, the current one: never empty */
    PyObject *stop;   /* the first cause, or NULL */
    LogEnd *at;       /* takes the items of lone callers, or NULL */
    int64_t alone[3 + BUCKETS]; /* their records, bytes, nanoseconds; histogram */
    Py_ssize_t unsynced, dirty_bytes, group_bytes, pending_bytes, overhead, body_max;
    unsigned long owner; /* thread that owns the flush lock, 0 for none */
    List lockers;        /* threads that wait for the flush lock */
    List chain;          /* threads of finished groups, to be woken one after the other */
    Py_ssize_t pending;  /* threads that are in the chain, or woken and not back yet */
    List leader;         /* the leader that waits until `pending` is 0 */
    int watched, relay;  /* the leader will watch the chain; groups without that */
    int not_ahead;       /* groups of which no thread is woken ahead */
    double wait_seconds;
} Queue;

typedef struct Group {
    OBJECT Queue *queue; /* NULL once finished */
    PyObject *error, *loops, *items, *lsns;
    Py_ssize_t bytes;
    char sync, requested, finished;
    List waiters;
} Group;

typedef struct {
    OBJECT Group *group;
    Py_ssize_t index;
} Ticket;

typedef struct { /* iterator of a ticket, and what its task sees in place of a future */
    OBJECT PyObject *loop, *wake, *context, *message;
    Group *group;
    Py_ssize_t index;
    char blocking, cancelled;
} Await;

static PyTypeObject *GroupType, *TicketType, *AwaitType;
static PyObject *wake_tasks; /* a function of this module */
static PyObject *get_running_loop, *copy_error, *cancelled_error, *bytes_of;

static Group *new_group(Queue *queue) {
    Group *group = allocate(GroupType, 5, 3);
    if (group && !((group->items = PyList_New(0)) && (group->loops = PyDict_New()))) {
        DROP(group);
        return NULL;
    }
    if (group) group->queue = (Queue *)Py_NewRef((PyObject *)queue);
    return group;
}

static PyObject *raise_copy(PyObject *error) {
    return raise_made(PyObject_CallFunctionObjArgs(copy_error, error, NULL));
}

static Group *group_at(PyObject *groups, Py_ssize_t place) {
    return (Group *)PyList_GetItem(groups, place);
}

static Group *current(Queue *queue) {
    return group_at(queue->groups, PyList_Size(queue->groups) - 1);
}

static PyObject *outcome(Group *group, Py_ssize_t index) {
    return group->error ? raise_copy(group->error) : PySequence_GetItem(group->lsns, index);
}

/* -- waking -------------------------------------------------------------------------------- */

static void pass_on(List *list) {
    Waiter *waiter = pop(list);
    if (waiter) call(waiter);
}

/* Return the oldest group that is unfinished and fits, by a borrowed reference. */
static Group *find_group(Queue *queue, int (*fits)(Group *)) {
    for (Py_ssize_t place = 0; place < PyList_Size(queue->groups); place++)
        if (fits(group_at(queue->groups, place))) return group_at(queue->groups, place);
    return NULL;
}

static int has_waiters(Group *group) { return group->waiters.count > 0; }

static int needs_flusher(Group *group) {
    return PyList_Size(group->items) &&
           (group->requested || (group->loops && PyDict_Size(group->loops)));
}

/* I5: call a thread that can lead, if the flush lock is free and no chain will do it at its end. */
static void call_leader(Queue *queue) {
    if (queue->owner || queue->chain.count) return;
    Group *group = find_group(queue, has_waiters);
    if (group) call(pop(&group->waiters));
}

enum { CALLED, INTERRUPTED, LATE, STALLED };

/* A thread that was acknowledged runs again: it keeps the chain going, and I5. */
static void came_back(Queue *queue) {
    if (--queue->pending == 0) pass_on(&queue->leader);
    if (!queue->watched) pass_on(&queue->chain);
    call_leader(queue);
}

/* Mark the first of the chain as woken ahead; return its word, to be woken, or NULL. It may be
   gone once the interpreter lock is given up: its address is then only a number to the kernel. */
static uint32_t *mark_ahead(Queue *queue) {
    Waiter *first = queue->not_ahead ? NULL : queue->chain.first;
    return first && exchange(&first->called, ASLEEP, AWAKE) ? &first->called : NULL;
}

/* Sleep in a list until called, interrupted by a signal, or `until` (0: no limit), without the
   interpreter lock; the next one of the chain is woken first. */
static int sleep_in(Queue *queue, List *list, int64_t until) {
    Waiter *waiter = calloc(1, sizeof *waiter); /* it outlives a thread that the exit ends */
    struct timespec at = {until / 1000000000, until % 1000000000};
    int how = CALLED, in_vain = 0;
    if (!waiter) return PyErr_NoMemory(), INTERRUPTED;
    push(list, waiter);
    waiter->counted = list == &queue->chain;
    queue->pending += waiter->counted;
    Waiter *next = pop(&queue->chain);
    uint32_t *word = &waiter->called, *ahead = next ? mark_ahead(queue) : NULL, value;
    PyThreadState *state = PyEval_SaveThread();
    if (next) call(next);
    if (ahead) wake(ahead);
    while (how == CALLED && (value = look_at(word)) != IS_CALLED) {
        in_vain |= value == ASLEEP_AGAIN;
        if (futex(word, FUTEX_WAIT_BITSET, value, until ? &at : NULL))
            how = errno == EINTR ? INTERRUPTED : errno == ETIMEDOUT ? LATE : CALLED;
    }
    PyEval_RestoreThread(state);
    if (waiter->list)
        unlink_waiter(waiter);
    else /* taken out of the list, so it is called, if not yet then soon */
        for (how = CALLED; (value = look_at(word)) != IS_CALLED;)
            futex(word, FUTEX_WAIT_BITSET, value, NULL);
    if (in_vain) queue->not_ahead = AHEAD_PAUSE;
    if (waiter->counted) came_back(queue);
    free(waiter);
    return how;
}

static int interrupted(void) { return PyErr_Occurred() ? -1 : PyErr_CheckSignals(); }

/* -- the flush lock ------------------------------------------------------------------------ */

static int refuse_owner(Queue *queue) {
    if (queue->owner != PyThread_get_thread_ident()) return 0;
    raise_made(ASK(queue, own_flush_error));
    return -1;
}

/* Nobody calls a thread once the interpreter ends, when finalizers run: all others are stopped. */
static int refuse_sleep(Queue *queue) {
    if (refuse_owner(queue) < 0) return -1;
    PyObject *ask = PySys_GetObject("is_finalizing"); /* borrowed */
    PyObject *found = ask ? PyObject_CallNoArgs(ask) : NULL;
    int ends = found ? PyObject_IsTrue(found) : ask ? -1 : 1;
    XDROP(found);
    if (ends > 0) raise_made(ASK(queue, ended_error));
    return ends ? -1 : 0;
}

static void release(Queue *queue) {
    Waiter *locker = pop(&queue->lockers);
    /* Handed over: a thread that waits for the lock would else never win against leaders. */
    queue->owner = locker ? ULONG_MAX : 0;
    if (locker)
        call(locker);
    else
        call_leader(queue);
}

static PyObject *queue_release(Queue *queue, PyObject *Py_UNUSED(none)) {
    release(queue);
    return PyBool_FromLong(find_group(queue, needs_flusher) || queue->stop);
}

/* Release the flush lock if a callback was interrupted before it could. */
static void release_if_owned(Queue *queue) {
    PyObject *kind, *error, *trace;
    if (queue->owner != PyThread_get_thread_ident()) return;
    release(queue);
    if (find_group(queue, needs_flusher)) {
        PyErr_Fetch(&kind, &error, &trace);
        XDROP(ASK(queue, request_flush));
        PyErr_Restore(kind, error, trace);
    }
}

static PyObject *queue_acquire(Queue *queue, PyObject *Py_UNUSED(none)) {
    if (queue->owner && refuse_sleep(queue) < 0) return NULL;
    while (queue->owner && sleep_in(queue, &queue->lockers, 0) != CALLED)
        if (interrupted() < 0) return NULL;
    queue->owner = PyThread_get_thread_ident();
    Py_RETURN_NONE;
}

static PyObject *queue_try_acquire(Queue *queue, PyObject *Py_UNUSED(none)) {
    if (queue->owner) Py_RETURN_FALSE;
    queue->owner = PyThread_get_thread_ident();
    Py_RETURN_TRUE;
}

/* -- leading and waiting ------------------------------------------------------------------- */

/* Watch the chain as its last member, until it has ended or stalls. */
static int watch_chain(Queue *queue) {
    int how = LATE;
    while (queue->watched && queue->chain.count && how == LATE) {
        Py_ssize_t rest = queue->chain.count - 1; /* it wakes one itself */
        how = sleep_in(queue, &queue->chain, now_ns(CLOCK_MONOTONIC) + STALL_NS);
        if (how == LATE && queue->chain.count == rest) how = STALLED;
    }
    if (how == STALLED) queue->relay = RELAY;
    queue->watched = 0;
    pass_on(&queue->chain); /* for nobody watches now */
    return how == INTERRUPTED ? interrupted() : 0;
}

static int one_processor(void) {
    cpu_set_t set; /* too small for this machine: it has more than one */
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1;
}

/* Flush; the callback releases the flush lock, whatever happens. */
static int lead(Queue *queue) {
    queue->owner = PyThread_get_thread_ident();
    if (queue->relay) queue->relay--;
    queue->watched = !queue->relay;
    if (queue->not_ahead) queue->not_ahead--;
    if (one_processor()) queue->not_ahead = 1;
    PyObject *done = ASK(queue, lead, Py_True);
    release_if_owned(queue);
    XDROP(done);
    if (!done) queue->watched = 0;
    return watch_chain(queue) || !done ? -1 : 0;
}

static int64_t deadline_of(PyObject *timeout) {
    if (timeout == Py_None) return 0;
    double seconds = PyFloat_AsDouble(timeout);
    if (seconds == -1.0 && PyErr_Occurred()) return -1;
    seconds = seconds > 1e9 ? 1e9 : seconds > 0 ? seconds : 0; /* not a number: 0 */
    return now_ns(CLOCK_MONOTONIC) + (int64_t)(seconds * 1e9);
}

/* Sleep until the group is finished, or the thread may have to lead; -1 with an exception. */
static int sleep_for(Queue *queue, Group *group, int64_t until) {
    if (refuse_sleep(queue) < 0) return -1;
    int how = sleep_in(queue, &group->waiters, until);
    if (how == INTERRUPTED) return interrupted();
    if (how != LATE || group->finished) return 0;
    group->requested = 1;
    PyObject *done = ASK(queue, request_flush);
    if (done) raise_made(ASK(queue, late_error));
    XDROP(done);
    return -1;
}

static int wait_for(Queue *queue, Group *group, int64_t until) {
    int failed = 0;
    KEEP(queue), KEEP(group);
    while (!group->finished && !failed)
        failed = queue->owner || queue->chain.count ? sleep_for(queue, group, until) : lead(queue);
    DROP(group), DROP(queue);
    return failed;
}

static PyObject *queue_wait_for(Queue *queue, PyObject *args) {
    Group *group;
    if (!PyArg_ParseTuple(args, "O!", GroupType, &group) || wait_for(queue, group, 0) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* The leader's wait for the threads that were acknowledged last and are not back. */
static PyObject *queue_wait_for_woken(Queue *queue, PyObject *Py_UNUSED(none)) {
    int64_t until = now_ns(CLOCK_MONOTONIC) + (int64_t)(queue->wait_seconds * 1e9);
    while (queue->pending && queue->wait_seconds > 0 && !PyErr_Occurred() &&
           sleep_in(queue, &queue->leader, until) == INTERRUPTED);
    PyErr_Clear(); /* of memory: a wait that is not needed */
    Py_RETURN_NONE;
}

/* -- items --------------------------------------------------------------------------------- */

#define ITEM_MAX ((Py_ssize_t)1 << 40) /* bytes; no log takes an item of nearly that size */

/* Make the current group dirty if an item of this size does not fit, or it must be written. */
static int rotate(Queue *queue, Py_ssize_t size) {
    Group *fresh = new_group(queue); /* first: it may run threads */
    Group *full = current(queue);
    int failed = !fresh;
    if (fresh && PyList_Size(full->items) && size > queue->group_bytes - full->bytes) {
        queue->dirty_bytes += full->bytes;
        failed = PyList_Append(queue->groups, (PyObject *)fresh) < 0;
    }
    XDROP(fresh);
    return failed;
}

/* Append an item to the current group; return the group by a borrowed reference. */
static Group *append(Queue *queue, PyObject *item, Py_ssize_t size, int sync, Py_ssize_t *index) {
    if (!queue->stop && size > queue->group_bytes - current(queue)->bytes && rotate(queue, size))
        return NULL;
    if (queue->stop) {
        raise_copy(queue->stop);
        return NULL;
    }
    Group *group = current(queue);
    *index = PyList_Size(group->items);
    if (PyList_Append(group->items, item) < 0) return NULL;
    group->bytes += size;
    group->sync |= sync;
    return group;
}

static int help_writing(Queue *queue) {
    if (queue->dirty_bytes <= queue->pending_bytes) return 0;
    PyObject *done = ASK(queue, write_dirty);
    XDROP(done);
    return done ? 0 : -1;
}

static int takes(Py_ssize_t count, Py_ssize_t due) {
    if (count != due) PyErr_Format(PyExc_TypeError, "%zd arguments are due, not %zd", due, count);
    return count == due;
}

static PyObject *submit(Queue *queue, PyObject *item, Py_ssize_t size, int sync) {
    Ticket *ticket = PyErr_Occurred() ? NULL : allocate(TicketType, 1, 0);
    if (!ticket) return NULL;
    Group *group = append(queue, item, size, sync, &ticket->index);
    if (group) ticket->group = (Group *)Py_NewRef((PyObject *)group);
    if (!group || help_writing(queue) < 0) {
        DROP(ticket);
        return NULL;
    }
    return (PyObject *)ticket;
}

static int idle(Queue *queue) {
    return !queue->owner && !queue->pending && !queue->stop && PyList_Size(queue->groups) == 1 &&
           !PyList_Size(current(queue)->items);
}

/* Write and sync the item of a lone caller; NULL, without an exception, if Python has to do it or
   to stop the log: what failed fails again. With one if an encoder was interrupted: nothing was
   written. */
static PyObject *commit_lone(Queue *queue, PyObject *item, Py_ssize_t size) {
    int64_t begin = now_ns(CLOCK_MONOTONIC), milliseconds, bucket;
    PyObject *done = NULL;
    queue->owner = PyThread_get_thread_ident();
    PyObject *lsn = PyBytes_CheckExact(item) ? write_plain(queue->at, item)
                                             : write_encoded(queue->at, item, size);
    if (!lsn && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        return release_if_owned(queue), NULL;
    queue->owner = 0;
    if (!lsn) return PyErr_Clear(), NULL;
    queue->alone[0]++, queue->alone[1] += size;
    queue->alone[2] += begin = now_ns(CLOCK_MONOTONIC) - begin;
    milliseconds = begin / 1000000;
    bucket = milliseconds ? 64 - __builtin_clzll((unsigned long long)milliseconds) : 0;
    queue->alone[3 + (bucket < BUCKETS ? bucket : BUCKETS - 1)]++;
    if (idle(queue) && !queue->lockers.count) return lsn;
    queue->owner = PyThread_get_thread_ident();
    if (!(done = ASK(queue, release))) Py_CLEAR(lsn);
    XDROP(done);
    release_if_owned(queue);
    return lsn;
}

static PyObject *commit(Queue *queue, PyObject *item, Py_ssize_t size) {
    PyObject *lsn = NULL;
    Py_ssize_t index;
    if (PyErr_Occurred()) return NULL;
    if (idle(queue)) {
        if (queue->at && ((lsn = commit_lone(queue, item, size)) || PyErr_Occurred())) return lsn;
        PyObject *number = PyLong_FromSsize_t(size);
        if (!number) return NULL;
        queue->owner = PyThread_get_thread_ident();
        lsn = ASK(queue, commit_alone, item, number);
        DROP(number);
        release_if_owned(queue);
        return lsn;
    }
    Group *group = append(queue, item, size, 1, &index);
    if (!group) return NULL;
    KEEP(group);
    if (help_writing(queue) == 0 && wait_for(queue, group, 0) == 0) lsn = outcome(group, index);
    DROP(group);
    return lsn;
}

/* Return the size of an item; -1 with an exception if sums of such sizes could overflow. */
static Py_ssize_t size_given(PyObject *number) {
    Py_ssize_t size = PyLong_AsSsize_t(number);
    if (size >= 0 && size <= ITEM_MAX) return size;
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_OverflowError, "an item has 0 to %zd bytes, not %zd", ITEM_MAX, size);
    return -1;
}

static PyObject *queue_submit(Queue *queue, PyObject *const *args, Py_ssize_t count) {
    return takes(count, 3)
               ? submit(queue, args[0], size_given(args[1]), PyObject_IsTrue(args[2]))
               : NULL;
}

static PyObject *queue_commit(Queue *queue, PyObject *const *args, Py_ssize_t count) {
    return takes(count, 2) ? commit(queue, args[0], size_given(args[1])) : NULL;
}

/* Return the size of a record with this body; -1 with an exception. */
static Py_ssize_t size_of(Queue *queue, PyObject *body) {
    Py_ssize_t size = PyObject_Size(body);
    if (size <= queue->body_max) return size < 0 ? size : size + queue->overhead;
    PyObject *number = PyLong_FromSsize_t(size);
    if (number) raise_made(ASK(queue, too_large, number));
    XDROP(number);
    return -1;
}

/* Return the bytes of what a caller gives as a body: its own, or a copy of a buffer's. */
static PyObject *body_of(PyObject *given) {
    return PyBytes_CheckExact(given) ? Py_NewRef(given)
                                     : PyObject_CallFunctionObjArgs(bytes_of, given, NULL);
}

static PyObject *queue_append(Queue *queue, PyObject *given) {
    PyObject *body = body_of(given);
    PyObject *ticket = body ? submit(queue, body, size_of(queue, body), 1) : NULL;
    XDROP(body);
    return ticket;
}

static PyObject *queue_append_durably(Queue *queue, PyObject *given) {
    PyObject *body = body_of(given);
    PyObject *lsn = body ? commit(queue, body, size_of(queue, body)) : NULL;
    XDROP(body);
    return lsn;
}

/* -- flushing: the caller owns the flush lock ---------------------------------------------- */

static PyObject *queue_take(Queue *queue, PyObject *Py_UNUSED(none)) {
    if (rotate(queue, PY_SSIZE_T_MAX)) return NULL;
    Py_ssize_t first = queue->unsynced;
    queue->unsynced = PyList_Size(queue->groups) - 1;
    queue->dirty_bytes = 0;
    return PyList_GetSlice(queue->groups, first, queue->unsynced);
}

/* Mark as finished and move the waiters to the chain; the tasks are woken by wake_loops. */
static void finish_group(Queue *queue, Group *group, PyObject *error) {
    Waiter *waiter;
    group->finished = 1;
    if (error) group->error = Py_NewRef(error);
    while ((waiter = pop(&group->waiters))) {
        push(&queue->chain, waiter);
        waiter->counted = 1;
        queue->pending++;
    }
}

static void wake_loops(PyObject *groups) {
    for (Py_ssize_t place = 0; place < PyList_Size(groups); place++) {
        Group *group = group_at(groups, place);
        PyObject *loops = group->loops, *loop, *tasks;
        Queue *queue = group->queue;
        group->loops = NULL;
        group->queue = NULL;
        for (Py_ssize_t at = 0; loops && PyDict_Next(loops, &at, &loop, &tasks);) {
            PyObject *done = PyObject_CallMethodObjArgs(loop, word[N_call_soon_threadsafe],
                                                        wake_tasks, loop, tasks, NULL);
            if (!done) PyErr_Clear(); /* a closed loop has no tasks left that could wait */
            XDROP(done);
        }
        XDROP(loops), XDROP(queue);
    }
}

/* Finish so many groups from one on, with an error if there is one. */
static PyObject *end_groups(Queue *queue, Py_ssize_t first, Py_ssize_t count, PyObject *error) {
    PyObject *groups = PyList_GetSlice(queue->groups, first, first + count);
    if (!groups || PyList_SetSlice(queue->groups, first, first + count, NULL) < 0) {
        XDROP(groups);
        return NULL;
    }
    queue->unsynced -= count < queue->unsynced ? count : queue->unsynced;
    for (Py_ssize_t place = 0; place < count; place++)
        finish_group(queue, group_at(groups, place), error);
    if (!queue->watched) pass_on(&queue->chain); /* else its watcher begins */
    wake_loops(groups);
    DROP(groups);
    return Py_NewRef(Py_None);
}

static PyObject *queue_finish(Queue *queue, PyObject *args) {
    double seconds;
    if (!PyArg_ParseTuple(args, "d", &seconds)) return NULL;
    seconds *= WAIT_FLUSHES;
    queue->wait_seconds = seconds < WAIT_SECONDS ? seconds : WAIT_SECONDS;
    return end_groups(queue, 0, queue->unsynced, NULL);
}

static PyObject *queue_refuse(Queue *queue, PyObject *args) {
    PyObject *group, *error;
    if (!PyArg_ParseTuple(args, "O!O", GroupType, &group, &error)) return NULL;
    Py_ssize_t place = PySequence_Index(queue->groups, group);
    if (place >= queue->unsynced)
        PyErr_SetString(PyExc_ValueError, "a group that was taken is due");
    return PyErr_Occurred() ? NULL : end_groups(queue, place, 1, error);
}

static PyObject *queue_unfinished(Queue *queue, PyObject *Py_UNUSED(none)) {
    PyObject *groups = PyList_New(0); /* first: it may run threads, which finish groups */
    Py_ssize_t count = PyList_Size(queue->groups) - !PyList_Size(current(queue)->items);
    for (Py_ssize_t place = 0; groups && place < count; place++)
        if (PyList_Append(groups, (PyObject *)group_at(queue->groups, place))) Py_CLEAR(groups);
    return groups;
}

static PyObject *queue_stop(Queue *queue, PyObject *cause) {
    if (rotate(queue, PY_SSIZE_T_MAX)) return NULL;
    if (!queue->stop) queue->stop = Py_NewRef(cause);
    queue->dirty_bytes = 0;
    PyObject *done = end_groups(queue, 0, PyList_Size(queue->groups) - 1, queue->stop);
    XDROP(done);
    return done ? Py_NewRef(queue->stop) : NULL;
}

/* In a forked child: its other threads, and with them the waiters, do not exist. */
static PyObject *queue_forget_waiters(Queue *queue, PyObject *Py_UNUSED(none)) {
    memset(&queue->lockers, 0, sizeof(List));
    memset(&queue->chain, 0, sizeof(List));
    memset(&queue->leader, 0, sizeof(List));
    queue->owner = 0;
    queue->pending = queue->watched = 0;
    for (Py_ssize_t place = 0; place < PyList_Size(queue->groups); place++) {
        Group *group = group_at(queue->groups, place);
        memset(&group->waiters, 0, sizeof(List));
        Py_CLEAR(group->loops);
    }
    Py_RETURN_NONE;
}

/* -- the type Queue ------------------------------------------------------------------------ */

static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named)) {
    PyObject *policy, *at;
    Py_ssize_t limit[4];
    if (!PyArg_ParseTuple(args, "OnnnnO", &policy, &limit[0], &limit[1], &limit[2], &limit[3], &at))
        return NULL;
    if (at != Py_None && Py_TYPE(at) != LogEndType) return PyErr_BadArgument(), NULL;
    Queue *queue = allocate(type, 4, 1);
    if (!queue) return NULL;
    if (at != Py_None) queue->at = (LogEnd *)Py_NewRef(at);
    queue->policy = Py_NewRef(policy);
    queue->group_bytes = limit[0];
    queue->pending_bytes = limit[1];
    queue->overhead = limit[2];
    queue->body_max = limit[3];
    queue->groups = Py_BuildValue("[N]", new_group(queue));
    if (!queue->groups) Py_CLEAR(queue);
    return (PyObject *)queue;
}

static PyObject *queue_owned(Queue *queue, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(queue->owner == PyThread_get_thread_ident());
}

static PyObject *queue_counted_alone(Queue *queue, PyObject *Py_UNUSED(none)) {
    return PyBytes_FromStringAndSize((char *)queue->alone, sizeof queue->alone);
}

static PyObject *queue_refuse_if_stopped(Queue *queue, PyObject *Py_UNUSED(none)) {
    return queue->stop ? raise_copy(queue->stop) : Py_NewRef(Py_None);
}

#define METHOD(name, flags) {#name, (PyCFunction)(void (*)(void))queue_##name, flags, NULL}
static PyMethodDef queue_methods[] = {METHOD(submit, METH_FASTCALL),
                                      METHOD(commit, METH_FASTCALL),
                                      METHOD(append, METH_O),
                                      METHOD(append_durably, METH_O),
                                      METHOD(wait_for, METH_VARARGS),
                                      METHOD(wait_for_woken, METH_NOARGS),
                                      METHOD(acquire, METH_NOARGS),
                                      METHOD(try_acquire, METH_NOARGS),
                                      METHOD(release, METH_NOARGS),
                                      METHOD(take, METH_NOARGS),
                                      METHOD(finish, METH_VARARGS),
                                      METHOD(refuse, METH_VARARGS),
                                      METHOD(stop, METH_O),
                                      METHOD(unfinished, METH_NOARGS),
                                      METHOD(forget_waiters, METH_NOARGS),
                                      METHOD(refuse_if_stopped, METH_NOARGS),
                                      METHOD(counted_alone, METH_NOARGS),
                                      UNCOPIED,
                                      {NULL}};
static PyMemberDef queue_members[] = {
    {"stopped", T_OBJECT, offsetof(Queue, stop), READONLY, NULL},
    {"unsynced", T_PYSSIZET, offsetof(Queue, unsynced), READONLY, NULL},
    {"pending", T_PYSSIZET, offsetof(Queue, pending), READONLY, NULL},
    {NULL}};
static PyGetSetDef queue_getters[] = {{"owned", (getter)queue_owned, NULL, NULL, NULL}, {NULL}};
static PyType_Slot queue_slots[] = {{Py_tp_new, queue_new},         COMMON,
                                    {Py_tp_methods, queue_methods}, {Py_tp_members, queue_members},
                                    {Py_tp_getset, queue_getters},  {0, NULL}};
static PyType_Spec queue_spec = SPEC(Queue, queue_slots, 0);

/* -- the type Group ------------------------------------------------------------------------ */

static PyMemberDef group_members[] = {{"items", T_OBJECT, offsetof(Group, items), READONLY, NULL},
                                      {"error", T_OBJECT, offsetof(Group, error), READONLY, NULL},
                                      {"lsns", T_OBJECT, offsetof(Group, lsns), 0, NULL},
                                      {"bytes", T_PYSSIZET, offsetof(Group, bytes), READONLY, NULL},
                                      {"sync", T_BOOL, offsetof(Group, sync), READONLY, NULL},
                                      {NULL}};
static PyMethodDef group_methods[] = {UNCOPIED, {NULL}};
static PyType_Slot group_slots[] = {
    COMMON, {Py_tp_methods, group_methods}, {Py_tp_members, group_members}, {0, NULL}};
static PyType_Spec group_spec = SPEC(Group, group_slots, Py_TPFLAGS_DISALLOW_INSTANTIATION);

/* -- the type Ticket ----------------------------------------------------------------------- */

/* The garbage collector takes the queue from the groups of a log that was never closed. */
static int has_queue(Group *group) {
    int has = group->queue && group->queue->policy && group->loops;
    if (!has) PyErr_SetString(PyExc_RuntimeError, "the log of this ticket is gone");
    return has ? 0 : -1;
}

static PyObject *ticket_wait(Ticket *ticket, PyObject *args, PyObject *named) {
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = Py_None;
    Group *group = ticket->group;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|O", names, &timeout)) return NULL;
    int64_t until = group->finished ? 0 : deadline_of(timeout); /* first: it may run threads */
    if (until < 0) return NULL;
    if (!group->finished && (has_queue(group) < 0 || wait_for(group->queue, group, until) < 0))
        return NULL;
    return outcome(group, ticket->index);
}

static PyObject *ticket_done(Ticket *ticket, PyObject *Py_UNUSED(none)) {
    return PyBool_FromLong(ticket->group->finished);
}

static PyObject *ticket_start_flush(Ticket *ticket, PyObject *Py_UNUSED(none)) {
    Group *group = ticket->group;
    if (group->finished) Py_RETURN_NONE;
    if (has_queue(group) < 0) return NULL;
    group->requested = 1; /* first: a running flush reads it after it has released the lock */
    return ASK(group->queue, request_flush);
}

static PyObject *ticket_await(Ticket *ticket) {
    Await *await = allocate(AwaitType, 5, 4);
    if (await) {
        await->group = (Group *)Py_NewRef((PyObject *)ticket->group);
        await->index = ticket->index;
    }
    return (PyObject *)await;
}

static PyMethodDef ticket_methods[] = {
    {"wait", (PyCFunction)(void (*)(void))ticket_wait, METH_VARARGS | METH_KEYWORDS, NULL},
    {"done", (PyCFunction)ticket_done, METH_NOARGS, NULL},
    {"start_flush", (PyCFunction)ticket_start_flush, METH_NOARGS, NULL},
    UNCOPIED,
    {NULL}};
static PyType_Slot ticket_slots[] = {
    COMMON, {Py_tp_methods, ticket_methods}, {Py_am_await, ticket_await}, {0, NULL}};
static PyType_Spec ticket_spec = SPEC(Ticket, ticket_slots, Py_TPFLAGS_DISALLOW_INSTANTIATION);

/* -- the type Await ------------------------------------------------------------------------ */

/* Run every task of a loop on, in the order in which they came to wait. */
static PyObject *run_tasks(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *loop, *tasks;
    if (!PyArg_ParseTuple(args, "OO!", &loop, &PyList_Type, &tasks)) return NULL;
    for (Py_ssize_t place = 0; place < PyList_Size(tasks); place++) {
        Await *await = (Await *)PyList_GetItem(tasks, place);
        if (Py_TYPE((PyObject *)await) != AwaitType) return PyErr_BadArgument(), NULL;
        PyObject *wake = await->wake, *kind, *error, *trace;
        if (!wake) continue; /* cancelled, or it runs already */
        await->wake = NULL;
        KEEP(await);
        PyObject *done = PyObject_CallMethodObjArgs(await->context, word[N_run], wake, await, NULL);
        DROP(wake), DROP(await), XDROP(done);
        if (done) continue;
        /* The task has stopped the loop, by SystemExit or an interrupt. */
        PyErr_Fetch(&kind, &error, &trace);
        XDROP(PyObject_CallMethodObjArgs(loop, word[N_call_soon], wake_tasks, loop, tasks, NULL));
        PyErr_Restore(kind, error, trace);
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Have a loop wait for the group with these tasks. Whatever is called here may run other threads,
   which finish the group: then its queue is gone. */
static void add_loop(Group *group, PyObject *loop, PyObject *tasks) {
    if (group->finished || has_queue(group) < 0) return;
    PyObject *policy = Py_NewRef(group->queue->policy), *loops = Py_NewRef(group->loops);
    PyObject *request = PyObject_GetAttr(policy, word[N_request_flush]);
    if (request && !group->finished && PyDict_SetItem(loops, loop, tasks) == 0)
        /* In the loop's next round: by then every task that is ready now has submitted. */
        XDROP(PyObject_CallMethodObjArgs(loop, word[N_call_soon], request, NULL));
    XDROP(request), DROP(loops), DROP(policy);
}

/* Return the tasks of this loop that wait for the group, by a borrowed reference; NULL without an
   exception if the group is finished. */
static PyObject *tasks_of(Group *group, PyObject *loop) {
    PyObject *tasks = group->loops ? PyDict_GetItemWithError(group->loops, loop) : NULL;
    if (tasks || PyErr_Occurred() || !(tasks = PyList_New(0))) return tasks;
    add_loop(group, loop, tasks);
    DROP(tasks); /* the loops have the tasks */
    return PyErr_Occurred() || group->finished ? NULL : tasks;
}

/* Return the task's future, or NULL with an exception: StopIteration with the outcome. */
static PyObject *await_next(Await *await) {
    Group *group = await->group;
    if (!group->finished) {
        if (!await->loop && !(await->loop = PyObject_CallNoArgs(get_running_loop))) return NULL;
        PyObject *tasks = tasks_of(group, await->loop);
        if (tasks) {
            await->blocking = 1;
            return PyList_Append(tasks, (PyObject *)await) ? NULL : Py_NewRef((PyObject *)await);
        }
        if (PyErr_Occurred()) return NULL;
    }
    PyObject *result = outcome(group, await->index);
    if (result) PyErr_SetObject(PyExc_StopIteration, result);
    XDROP(result);
    return NULL;
}

static PyObject *await_add_done_callback(Await *await, PyObject *const *args, Py_ssize_t count,
                                         PyObject *names) {
    if (count != 1 || !names || PyTuple_Size(names) != 1) {
        PyErr_SetString(PyExc_TypeError, "a function and a context are due");
        return NULL;
    }
    PyObject *wake = await->wake, *context = await->context;
    await->wake = Py_NewRef(args[0]);
    await->context = Py_NewRef(args[1]);
    XDROP(wake), XDROP(context);
    Py_RETURN_NONE;
}

static PyObject *await_cancel(Await *await, PyObject *args, PyObject *named) {
    static char *names[] = {"msg", NULL};
    PyObject *message = Py_None, *done, *run;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|O", names, &message)) return NULL;
    if (!await->wake || !await->loop) Py_RETURN_FALSE;
    PyObject *wake = await->wake, *before = await->message;
    await->wake = NULL;
    await->cancelled = 1;
    await->message = Py_NewRef(message);
    XDROP(before); /* last: what it runs finds the new one */
    run = PyObject_GetAttr(await->context, word[N_run]);
    done = run ? PyObject_CallMethodObjArgs(await->loop, word[N_call_soon], run, wake, await, NULL)
               : NULL;
    XDROP(run), DROP(wake), XDROP(done);
    return done ? Py_NewRef(Py_True) : NULL;
}

/* The outcome of the group is the ticket's; this is only to raise in a cancelled task. */
static PyObject *await_result(Await *await, PyObject *Py_UNUSED(none)) {
    if (!await->cancelled) Py_RETURN_NONE;
    PyObject *message = await->message == Py_None ? NULL : await->message;
    return raise_made(PyObject_CallFunctionObjArgs(cancelled_error, message, NULL));
}

static PyMethodDef await_methods[] = {
    {"add_done_callback", (PyCFunction)(void (*)(void))await_add_done_callback,
     METH_FASTCALL | METH_KEYWORDS, NULL},
    {"cancel", (PyCFunction)(void (*)(void))await_cancel, METH_VARARGS | METH_KEYWORDS, NULL},
    {"result", (PyCFunction)await_result, METH_NOARGS, NULL},
    UNCOPIED,
    {NULL}};
static PyMemberDef await_members[] = {
    {"_asyncio_future_blocking", T_BOOL, offsetof(Await, blocking), 0, NULL},
    {"_loop", T_OBJECT, offsetof(Await, loop), READONLY, NULL},
    {NULL}};
static PyType_Slot await_slots[] = {COMMON,
                                    {Py_tp_iter, PyObject_SelfIter},
                                    {Py_tp_iternext, await_next},
                                    {Py_tp_methods, await_methods},
                                    {Py_tp_members, await_members},
                                    {0, NULL}};
static PyType_Spec await_spec = SPEC(Await, await_slots, Py_TPFLAGS_DISALLOW_INSTANTIATION);

/* -- what is added to the module ------------------------------------------------------------ */

static PyMethodDef run_tasks_method = {"run_tasks", run_tasks, METH_VARARGS, NULL};

int add_queue(PyObject *module) {
    copy_error = attribute("tallystick.errors", "copy_error");
    bytes_of = attribute("tallystick.arguments", "bytes_of");
    get_running_loop = attribute("asyncio", "get_running_loop");
    cancelled_error = attribute("asyncio", "CancelledError");
    GroupType = (PyTypeObject *)PyType_FromSpec(&group_spec);
    TicketType = (PyTypeObject *)PyType_FromSpec(&ticket_spec);
    AwaitType = (PyTypeObject *)PyType_FromSpec(&await_spec);
    wake_tasks = PyCFunction_NewEx(&run_tasks_method, NULL, NULL);
    PyObject *queue = PyType_FromSpec(&queue_spec);
    int failed = PyErr_Occurred() || PyModule_AddObjectRef(module, "Queue", queue) < 0 ||
                 PyModule_AddObjectRef(module, "Group", (PyObject *)GroupType) < 0 ||
                 PyModule_AddObjectRef(module, "Ticket", (PyObject *)TicketType) < 0 ||
                 PyModule_AddObjectRef(module, "run_tasks", wake_tasks) < 0;
    XDROP(queue);
    return failed ? -1 : 0;
}
