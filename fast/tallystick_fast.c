/* The compiled core of group commit: who waits for which group, and who leads.

   It does what tallystick/storage/group/queue.py does, for threads and asyncio tasks, and has the
   same interface; the rules I1-I6 stand in tallystick/storage/group/writer.py. It knows no format
   and does no input or output, but for write_plain at the end.

   The interpreter lock guards everything here: no function gives it up between two statements
   that belong together. It is given up in park() alone, and by callbacks, which run last.

   Waking. A finished group has a waiter per thread. To wake them all at once has each of them wake
   twice, once for the group and once for the interpreter lock. So they form a chain: a thread that
   was woken goes on, submits again, and wakes the next one just before it goes to sleep, when it
   gives up the interpreter lock. The thread that led the flush is the last of the chain and
   watches it: if no one is woken for STALL_NS, a thread does something else first, and from then
   on, for a while, each wakes the next one as soon as it wakes itself. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define INTERFACE 1         /* the main package refuses another number */
#define STALL_NS 200000     /* time without a wake-up after which a chain is stalled */
#define CHAIN_MIN 4         /* fewer threads than that wake each other at once */
#define RELAY_MIN 16        /* groups without a chain after a stall; doubles with each */
#define RELAY_MAX 4096
#define WAIT_FLUSHES 2.0    /* longest wait of a leader, in durations of the last flush ... */
#define WAIT_SECONDS 0.005  /* ... and in seconds */

#define KEEP(object) Py_INCREF((PyObject *)(object))
#define DROP(object) Py_DECREF((PyObject *)(object))
#define XDROP(object) Py_XDECREF((PyObject *)(object))

/* -- waiters ------------------------------------------------------------------------------- */

typedef struct Waiter {
    struct Waiter *previous, *next;
    struct List *list; /* where it is; NULL once another thread has taken it out to call it */
    uint32_t called;   /* futex word */
    char counted;      /* in the queue's `pending` */
} Waiter;

typedef struct List {
    Waiter *first, *last;
    Py_ssize_t count;
} List;

static void push(List *list, Waiter *waiter)
{
    waiter->list = list;
    waiter->next = NULL;
    waiter->previous = list->last;
    *(list->last ? &list->last->next : &list->first) = waiter;
    list->last = waiter;
    list->count++;
}

static void unlink_waiter(Waiter *waiter)
{
    List *list = waiter->list;
    *(waiter->previous ? &waiter->previous->next : &list->first) = waiter->next;
    *(waiter->next ? &waiter->next->previous : &list->last) = waiter->previous;
    list->count--;
    waiter->list = NULL;
}

static Waiter *pop(List *list)
{
    Waiter *waiter = list->first;
    if (waiter)
        unlink_waiter(waiter);
    return waiter;
}

static int futex(uint32_t *word, int operation, uint32_t value, const struct timespec *until)
{
    return (int)syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, until, NULL,
                        FUTEX_BITSET_MATCH_ANY);
}

/* The waiter may be gone after the store: its address is then only a number to the kernel. */
static void call(Waiter *waiter)
{
    uint32_t *word = &waiter->called;
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    futex(word, FUTEX_WAKE, 1, NULL);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static struct timespec at_ns(int64_t ns)
{
    struct timespec at = {ns / 1000000000, ns % 1000000000};
    return at;
}

/* -- objects ------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *lead, *alone, *through, *ended, *request, *write_dirty, *name;
    PyObject *stop;              /* the first cause, or NULL */
    struct Group *current;
    PyObject *dirty, *unsynced;  /* lists of groups */
    Py_ssize_t dirty_bytes, group_bytes, pending_bytes;
    unsigned long owner;         /* thread that owns the flush lock, 0 for none */
    List lockers;                /* threads that wait for the flush lock */
    List chain;                  /* threads of finished groups, to be woken one after the other */
    Py_ssize_t pending;          /* threads that are in the chain, or woken and not back yet */
    uint32_t back;               /* futex word: changes when `pending` becomes 0 */
    uint32_t passes;             /* wake-ups along the chain */
    int failed;                  /* `stop` is what failed, and not yet what callers get */
    int watched;                 /* the leader is a thread that will watch the chain */
    long relay, relay_next;      /* groups still without a chain; how many after the next stall */
    double wait_seconds;
} Queue;

typedef struct Group {
    PyObject_HEAD
    Queue *queue; /* NULL once finished */
    PyObject *items, *error, *lsns, *loops;
    Py_ssize_t bytes;
    char sync, requested, finished;
    List waiters;
} Group;

typedef struct {
    PyObject_HEAD
    Group *group;
    Py_ssize_t index;
} Ticket;

typedef struct { /* the tasks of one loop that wait for one group */
    PyObject_HEAD
    PyObject *loop, *tasks;
    Py_ssize_t place;
} Loop;

typedef struct { /* iterator of a ticket, and what its task sees in place of a future */
    PyObject_HEAD
    Group *group;
    Py_ssize_t index;
    PyObject *loop, *wake, *context, *message;
    char blocking, cancelled, asked;
} Await;

static PyTypeObject *GroupType, *TicketType, *LoopType, *AwaitType;
static PyObject *get_running_loop, *copy_error, *usage_error, *cancelled_error;
static PyObject *s_call_soon, *s_threadsafe, *s_run, *s_context;

static Group *new_group(Queue *queue)
{
    Group *group = (Group *)PyType_GenericAlloc(GroupType, 0);
    if (group && !(group->items = PyList_New(0))) {
        DROP(group);
        return NULL;
    }
    if (group)
        group->queue = (Queue *)Py_NewRef((PyObject *)queue);
    return group;
}

static PyObject *raise_copy(PyObject *error)
{
    PyObject *copy = PyObject_CallFunctionObjArgs(copy_error, error, NULL);
    if (copy) {
        PyErr_SetObject((PyObject *)Py_TYPE(copy), copy);
        DROP(copy);
    }
    return NULL;
}

static PyObject *outcome(Group *group, Py_ssize_t index)
{
    return group->error ? raise_copy(group->error) : PySequence_GetItem(group->lsns, index);
}

/* -- waking -------------------------------------------------------------------------------- */

static Waiter *next_in_chain(Queue *queue)
{
    Waiter *waiter = pop(&queue->chain);
    if (waiter)
        __atomic_add_fetch(&queue->passes, 1, __ATOMIC_RELAXED);
    return waiter;
}

static void pass_on(Queue *queue)
{
    Waiter *waiter = next_in_chain(queue);
    if (waiter)
        call(waiter);
}

/* Return the oldest group that is unfinished and fits, by a borrowed reference. */
static Group *find_group(Queue *queue, int (*fits)(Group *))
{
    PyObject *lists[2] = {queue->unsynced, queue->dirty};
    for (int one = 0; one < 2; one++)
        for (Py_ssize_t place = 0; place < PyList_Size(lists[one]); place++) {
            Group *group = (Group *)PyList_GetItem(lists[one], place);
            if (fits(group))
                return group;
        }
    return fits(queue->current) ? queue->current : NULL;
}

static int has_waiters(Group *group) { return group->waiters.count > 0; }

static int needs_flusher(Group *group)
{
    return PyList_Size(group->items) && (group->requested || group->loops);
}

/* I5: call a thread that can lead, if the flush lock is free and no chain will do it at its end. */
static void call_leader(Queue *queue)
{
    if (queue->owner || queue->chain.count)
        return;
    Group *group = find_group(queue, has_waiters);
    if (group)
        call(pop(&group->waiters));
}

enum { CALLED, INTERRUPTED, LATE, STALLED };

/* Sleep until called, interrupted by a signal, or `until` (0: no limit), without the interpreter
   lock; the next one of the chain is woken first. With `watch`, return when the chain stalls. */
static int park(Queue *queue, Waiter *waiter, int64_t until, int watch)
{
    Waiter *next = next_in_chain(queue);
    int how = CALLED;
    PyThreadState *state = PyEval_SaveThread();
    if (next)
        call(next);
    uint32_t seen = __atomic_load_n(&queue->passes, __ATOMIC_RELAXED);
    while (!__atomic_load_n(&waiter->called, __ATOMIC_ACQUIRE)) {
        struct timespec at = at_ns(watch ? now_ns() + STALL_NS : until);
        if (!futex(&waiter->called, FUTEX_WAIT_BITSET, 0, until || watch ? &at : NULL))
            continue;
        uint32_t passes = __atomic_load_n(&queue->passes, __ATOMIC_RELAXED);
        if (errno == EINTR)
            how = INTERRUPTED;
        else if (errno == ETIMEDOUT && !watch)
            how = LATE;
        else if (errno == ETIMEDOUT && passes == seen)
            how = STALLED;
        seen = passes;
        if (how != CALLED)
            break;
    }
    PyEval_RestoreThread(state);
    return how;
}

/* A thread that was acknowledged runs again: it keeps the chain going, and I5. */
static void came_back(Queue *queue)
{
    if (--queue->pending == 0) {
        __atomic_add_fetch(&queue->back, 1, __ATOMIC_RELEASE);
        futex(&queue->back, FUTEX_WAKE, INT_MAX, NULL);
    }
    if (queue->relay || !queue->watched)
        pass_on(queue);
    call_leader(queue);
}

/* A waiter that was taken out of its list is called soon: it must exist until then. */
static void leave(Queue *queue, Waiter *waiter)
{
    if (waiter->list)
        unlink_waiter(waiter);
    else if (!__atomic_load_n(&waiter->called, __ATOMIC_ACQUIRE)) {
        PyThreadState *state = PyEval_SaveThread();
        while (!__atomic_load_n(&waiter->called, __ATOMIC_ACQUIRE))
            futex(&waiter->called, FUTEX_WAIT_BITSET, 0, NULL);
        PyEval_RestoreThread(state);
    }
    if (waiter->counted)
        came_back(queue);
    free(waiter);
}

static Waiter *new_waiter(void)
{
    Waiter *waiter = calloc(1, sizeof *waiter);
    if (!waiter)
        PyErr_NoMemory();
    return waiter;
}

/* -- the flush lock ------------------------------------------------------------------------ */

static int refuse_owner(Queue *queue)
{
    if (queue->owner != PyThread_get_thread_ident())
        return 0;
    PyObject *error = PyObject_CallFunctionObjArgs(usage_error, queue->name, NULL);
    if (error) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        DROP(error);
    }
    return -1;
}

static void release(Queue *queue)
{
    Waiter *locker = queue->lockers.first;
    queue->owner = 0;
    if (locker) {
        /* Handed over: a thread that waits for the lock would else never win against leaders. */
        queue->owner = ULONG_MAX;
        call(pop(&queue->lockers));
    } else
        call_leader(queue);
}

static PyObject *queue_release(Queue *queue, PyObject *Py_UNUSED(none))
{
    release(queue);
    return PyBool_FromLong(find_group(queue, needs_flusher) || queue->stop);
}

/* Release the flush lock if a callback was interrupted before it could. */
static void release_if_owned(Queue *queue)
{
    PyObject *kind, *error, *trace;
    if (queue->owner != PyThread_get_thread_ident())
        return;
    release(queue);
    if (find_group(queue, needs_flusher)) {
        PyErr_Fetch(&kind, &error, &trace);
        XDROP(PyObject_CallNoArgs(queue->request));
        PyErr_Restore(kind, error, trace);
    }
}

static int acquire(Queue *queue)
{
    if (refuse_owner(queue) < 0)
        return -1;
    if (queue->owner) {
        Waiter *waiter = new_waiter();
        int how, broken;
        if (!waiter)
            return -1;
        push(&queue->lockers, waiter);
        do {
            how = park(queue, waiter, 0, 0);
            broken = how == INTERRUPTED && PyErr_CheckSignals() < 0;
        } while (how == INTERRUPTED && !broken);
        if (broken) {
            int handed = !waiter->list;
            leave(queue, waiter);
            if (handed) {
                queue->owner = PyThread_get_thread_ident();
                release_if_owned(queue);
            }
            return -1;
        }
        leave(queue, waiter);
    }
    queue->owner = PyThread_get_thread_ident();
    return 0;
}

static PyObject *queue_acquire(Queue *queue, PyObject *Py_UNUSED(none))
{
    return acquire(queue) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *queue_try_acquire(Queue *queue, PyObject *Py_UNUSED(none))
{
    if (queue->owner)
        Py_RETURN_FALSE;
    queue->owner = PyThread_get_thread_ident();
    Py_RETURN_TRUE;
}

/* -- leading and waiting ------------------------------------------------------------------- */

/* Watch the chain as its last member, until it has ended or stalls. */
static int watch_chain(Queue *queue)
{
    Waiter *waiter = queue->watched && queue->chain.count ? new_waiter() : NULL;
    int how = CALLED;
    if (!waiter) {
        queue->watched = 0;
        PyErr_Clear();
        pass_on(queue);
        return 0;
    }
    push(&queue->chain, waiter);
    waiter->counted = 1;
    queue->pending++;
    how = park(queue, waiter, 0, 1);
    if (how != CALLED) {
        queue->relay = queue->relay_next;
        if (queue->relay_next < RELAY_MAX)
            queue->relay_next *= 2;
    } else if (queue->relay_next > RELAY_MIN)
        queue->relay_next--;
    queue->watched = 0;
    leave(queue, waiter); /* passes on, for nobody watches now */
    return how == INTERRUPTED ? PyErr_CheckSignals() : 0;
}

/* Flush; the callback releases the flush lock, whatever happens. */
static int lead(Queue *queue)
{
    queue->owner = PyThread_get_thread_ident();
    queue->watched = !queue->relay;
    PyObject *done = PyObject_CallFunctionObjArgs(queue->lead, Py_True, NULL);
    release_if_owned(queue);
    if (done) {
        DROP(done);
        return watch_chain(queue);
    }
    queue->watched = 0;
    pass_on(queue);
    return -1;
}

static int64_t deadline_of(PyObject *timeout)
{
    if (timeout == Py_None)
        return 0;
    double seconds = PyFloat_AsDouble(timeout);
    if (seconds == -1.0 && PyErr_Occurred())
        return -1;
    seconds = seconds < 0 ? 0 : seconds > 1e9 ? 1e9 : seconds;
    return now_ns() + (int64_t)(seconds * 1e9);
}

/* Sleep until the group is finished, or the thread may have to lead; -1 with an exception. */
static int sleep_for(Queue *queue, Group *group, int64_t until)
{
    if (refuse_owner(queue) < 0)
        return -1;
    Waiter *waiter = new_waiter();
    if (!waiter)
        return -1;
    push(&group->waiters, waiter);
    int how = park(queue, waiter, until, 0);
    int failed = how == INTERRUPTED ? PyErr_CheckSignals() : 0;
    leave(queue, waiter);
    if (!group->finished && (failed || how == LATE)) {
        group->requested |= how == LATE;
        call_leader(queue); /* if this one was called to lead */
    }
    if (failed || how != LATE || group->finished)
        return failed;
    PyObject *done = PyObject_CallNoArgs(queue->request);
    if (done)
        PyErr_Format(PyExc_TimeoutError, "%U: not durable in time; it may still become so",
                     queue->name);
    XDROP(done);
    return -1;
}

static int wait_for(Queue *queue, Group *group, int64_t until)
{
    int failed = 0;
    KEEP(queue);
    KEEP(group);
    while (!group->finished && !failed)
        failed = queue->owner || queue->chain.count ? sleep_for(queue, group, until) : lead(queue);
    DROP(group);
    DROP(queue);
    return failed;
}

static PyObject *queue_wait_for(Queue *queue, PyObject *args)
{
    Group *group;
    if (!PyArg_ParseTuple(args, "O!", GroupType, &group) || wait_for(queue, group, 0) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* The leader's wait for the threads that were acknowledged last and are not back. */
static PyObject *queue_wait_for_woken(Queue *queue, PyObject *Py_UNUSED(none))
{
    if (queue->pending && queue->wait_seconds > 0) {
        int64_t until = now_ns() + (int64_t)(queue->wait_seconds * 1e9);
        struct timespec at = at_ns(until);
        uint32_t seen = __atomic_load_n(&queue->back, __ATOMIC_ACQUIRE);
        Waiter *next = next_in_chain(queue);
        PyThreadState *state = PyEval_SaveThread();
        if (next)
            call(next);
        while (__atomic_load_n(&queue->back, __ATOMIC_ACQUIRE) == seen &&
               (!futex(&queue->back, FUTEX_WAIT_BITSET, seen, &at) || errno == EINTR))
            ;
        PyEval_RestoreThread(state);
    }
    Py_RETURN_NONE;
}

/* -- items --------------------------------------------------------------------------------- */

/* Make the current group dirty, unless it is empty. */
static int rotate(Queue *queue, Group *fresh)
{
    Group *full = queue->current;
    if (!PyList_Size(full->items)) {
        DROP(fresh);
        return 0;
    }
    if (PyList_Append(queue->dirty, (PyObject *)full) < 0) {
        DROP(fresh);
        return -1;
    }
    queue->dirty_bytes += full->bytes;
    queue->current = fresh;
    DROP(full);
    return 0;
}

/* Append an item to the current group; return the group by a borrowed reference. */
static Group *append(Queue *queue, PyObject *item, Py_ssize_t size, int sync, Py_ssize_t *index)
{
    if (!queue->stop && size > queue->group_bytes - queue->current->bytes &&
        PyList_Size(queue->current->items)) {
        Group *fresh = new_group(queue); /* may run other threads */
        if (!fresh)
            return NULL;
        if (size > queue->group_bytes - queue->current->bytes) {
            if (rotate(queue, fresh) < 0)
                return NULL;
        } else
            DROP(fresh);
    }
    if (queue->stop) {
        raise_copy(queue->stop);
        return NULL;
    }
    Group *group = queue->current;
    *index = PyList_Size(group->items);
    if (PyList_Append(group->items, item) < 0)
        return NULL;
    group->bytes += size;
    group->sync |= sync;
    return group;
}

static int help_writing(Queue *queue)
{
    if (queue->dirty_bytes <= queue->pending_bytes)
        return 0;
    PyObject *done = PyObject_CallNoArgs(queue->write_dirty);
    XDROP(done);
    return done ? 0 : -1;
}

static int takes(Py_ssize_t count, Py_ssize_t due)
{
    if (count != due)
        PyErr_Format(PyExc_TypeError, "%zd arguments are due, not %zd", due, count);
    return count == due;
}

static PyObject *queue_submit(Queue *queue, PyObject *const *args, Py_ssize_t count)
{
    if (!takes(count, 3))
        return NULL;
    PyObject *item = args[0];
    Py_ssize_t size = PyLong_AsSsize_t(args[1]);
    int sync = PyObject_IsTrue(args[2]);
    if (PyErr_Occurred())
        return NULL;
    Ticket *ticket = (Ticket *)PyType_GenericAlloc(TicketType, 0);
    if (!ticket)
        return NULL;
    Group *group = append(queue, item, size, sync, &ticket->index);
    if (group)
        ticket->group = (Group *)Py_NewRef((PyObject *)group);
    if (!group || help_writing(queue) < 0) {
        DROP(ticket);
        return NULL;
    }
    return (PyObject *)ticket;
}

static int idle(Queue *queue)
{
    return !queue->owner && !queue->pending && !queue->stop &&
           !PyList_Size(queue->current->items) && !PyList_Size(queue->dirty) &&
           !PyList_Size(queue->unsynced);
}

/* Write and sync one item without a group; None: the log wants it done by `alone`. */
static PyObject *write_through(Queue *queue, PyObject *item, PyObject *size)
{
    double began = (double)now_ns();
    PyObject *lsn = PyObject_CallFunctionObjArgs(queue->through, item, NULL);
    if (lsn == Py_None)
        return lsn;
    PyObject *taken = PyFloat_FromDouble(((double)now_ns() - began) / 1e9);
    PyObject *kind, *error, *trace, *done = NULL;
    PyErr_Fetch(&kind, &error, &trace);
    PyErr_NormalizeException(&kind, &error, &trace);
    if (error && !queue->stop) { /* until `ended` has its own: an interrupt may keep it from that */
        queue->stop = Py_NewRef(error);
        queue->failed = 1;
    }
    if (taken)
        done = PyObject_CallFunctionObjArgs(queue->ended, size, taken, error ? error : Py_None, NULL);
    XDROP(taken);
    XDROP(kind), XDROP(error), XDROP(trace);
    if (!done)
        Py_CLEAR(lsn);
    XDROP(done);
    return lsn;
}

static PyObject *queue_commit(Queue *queue, PyObject *const *args, Py_ssize_t count)
{
    if (!takes(count, 2))
        return NULL;
    PyObject *item = args[0], *lsn = NULL;
    Py_ssize_t index, size = PyLong_AsSsize_t(args[1]);
    if (size == -1 && PyErr_Occurred())
        return NULL;
    if (idle(queue)) {
        queue->owner = PyThread_get_thread_ident();
        lsn = queue->through == Py_None ? Py_NewRef(Py_None) : write_through(queue, item, args[1]);
        if (lsn == Py_None) {
            DROP(lsn);
            lsn = PyObject_CallFunctionObjArgs(queue->alone, item, args[1], NULL);
        }
        release_if_owned(queue);
        return lsn;
    }
    Group *group = append(queue, item, size, 1, &index);
    if (!group)
        return NULL;
    KEEP(group);
    if (help_writing(queue) == 0 && wait_for(queue, group, 0) == 0)
        lsn = outcome(group, index);
    DROP(group);
    return lsn;
}

/* -- flushing: the caller owns the flush lock ---------------------------------------------- */

static PyObject *queue_take(Queue *queue, PyObject *Py_UNUSED(none))
{
    Group *fresh = new_group(queue);
    PyObject *empty = PyList_New(0), *groups = NULL;
    if (!fresh || !empty || rotate(queue, fresh) < 0) {
        if (!empty)
            XDROP(fresh);
        XDROP(empty);
        return NULL;
    }
    groups = queue->dirty;
    Py_ssize_t place, count = PyList_Size(groups);
    for (place = 0; place < count; place++)
        if (PyList_Append(queue->unsynced, PyList_GetItem(groups, place)) < 0) {
            DROP(empty);
            return NULL;
        }
    queue->dirty = empty;
    queue->dirty_bytes = 0;
    return groups;
}

/* Mark as finished and move the waiters to the chain; the tasks are woken by wake_loops. */
static void finish_group(Queue *queue, Group *group, PyObject *error)
{
    Waiter *waiter;
    group->finished = 1;
    if (error)
        group->error = Py_NewRef(error);
    while ((waiter = pop(&group->waiters))) {
        push(&queue->chain, waiter);
        waiter->counted = 1;
        queue->pending++;
    }
}

/* Begin to wake the chain: its members go on with it. Its watcher begins by itself. */
static void begin_chain(Queue *queue)
{
    if (!queue->chain.count)
        return;
    if (queue->relay)
        queue->relay--;
    if (queue->chain.count < CHAIN_MIN)
        queue->watched = 0;
    if (!queue->watched)
        pass_on(queue);
}

static void wake_loops(PyObject *groups)
{
    for (Py_ssize_t place = 0; place < PyList_Size(groups); place++) {
        Group *group = (Group *)PyList_GetItem(groups, place);
        PyObject *loops = group->loops;
        Queue *queue = group->queue;
        group->loops = NULL;
        group->queue = NULL;
        Py_ssize_t count = loops ? PyList_Size(loops) : 0;
        for (Py_ssize_t one = 0; one < count; one++) {
            Loop *loop = (Loop *)PyList_GetItem(loops, one);
            PyObject *done = PyObject_CallMethodObjArgs(loop->loop, s_threadsafe, loop, NULL);
            if (!done)
                PyErr_Clear(); /* a closed loop has no tasks left that could wait */
            XDROP(done);
        }
        XDROP(loops);
        XDROP(queue);
    }
}

static int finish_all(Queue *queue, PyObject *groups, PyObject *error)
{
    for (Py_ssize_t place = 0; place < PyList_Size(groups); place++)
        finish_group(queue, (Group *)PyList_GetItem(groups, place), error);
    begin_chain(queue);
    wake_loops(groups);
    return 0;
}

static PyObject *queue_finish(Queue *queue, PyObject *args)
{
    double seconds;
    PyObject *fresh, *groups;
    if (!PyArg_ParseTuple(args, "d", &seconds) || !(fresh = PyList_New(0)))
        return NULL;
    groups = queue->unsynced;
    queue->unsynced = fresh;
    seconds *= WAIT_FLUSHES;
    queue->wait_seconds = seconds < WAIT_SECONDS ? seconds : WAIT_SECONDS;
    finish_all(queue, groups, NULL);
    DROP(groups);
    Py_RETURN_NONE;
}

static PyObject *queue_refuse(Queue *queue, PyObject *args)
{
    PyObject *group, *error, *groups;
    if (!PyArg_ParseTuple(args, "O!O", GroupType, &group, &error) || !(groups = PyList_New(0)))
        return NULL;
    for (Py_ssize_t place = PyList_Size(queue->unsynced) - 1; place >= 0; place--)
        if (PyList_GetItem(queue->unsynced, place) == group) {
            if (PyList_Append(groups, group) < 0 ||
                PyList_SetSlice(queue->unsynced, place, place + 1, NULL) < 0)
                break;
            finish_all(queue, groups, error);
            break;
        }
    DROP(groups);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *queue_unfinished(Queue *queue, PyObject *Py_UNUSED(none))
{
    PyObject *groups = PyList_New(0);
    PyObject *lists[2] = {queue->unsynced, queue->dirty};
    for (int one = 0; groups && one < 2; one++) {
        Py_ssize_t end = PyList_Size(groups);
        if (PyList_SetSlice(groups, end, end, lists[one]) < 0)
            Py_CLEAR(groups);
    }
    if (groups && PyList_Size(queue->current->items) &&
        PyList_Append(groups, (PyObject *)queue->current) < 0)
        Py_CLEAR(groups);
    return groups;
}

static PyObject *queue_stop(Queue *queue, PyObject *cause)
{
    Group *fresh = new_group(queue);
    PyObject *none = PyList_New(0), *dirty = PyList_New(0);
    PyObject *groups = fresh ? queue_unfinished(queue, NULL) : NULL; /* last: the others may run threads */
    if (!groups || !none || !dirty) {
        XDROP(fresh), XDROP(groups), XDROP(none), XDROP(dirty);
        return NULL;
    }
    PyObject *first = queue->failed ? queue->stop : NULL;
    if (first || !queue->stop)
        queue->stop = Py_NewRef(cause);
    queue->failed = 0;
    XDROP(first);
    PyObject *old[3] = {queue->unsynced, queue->dirty, (PyObject *)queue->current};
    queue->unsynced = none;
    queue->dirty = dirty;
    queue->dirty_bytes = 0;
    queue->current = fresh;
    finish_all(queue, groups, queue->stop);
    for (int one = 0; one < 3; one++)
        DROP(old[one]);
    DROP(groups);
    return Py_NewRef(queue->stop);
}

/* In a forked child: its other threads, and with them the waiters, do not exist. */
static PyObject *queue_forget_waiters(Queue *queue, PyObject *Py_UNUSED(none))
{
    PyObject *groups = queue_unfinished(queue, NULL);
    if (!groups)
        return NULL;
    memset(&queue->lockers, 0, sizeof(List));
    memset(&queue->chain, 0, sizeof(List));
    queue->owner = 0;
    queue->pending = 0;
    queue->watched = 0;
    for (Py_ssize_t place = 0; place < PyList_Size(groups); place++) {
        Group *group = (Group *)PyList_GetItem(groups, place);
        memset(&group->waiters, 0, sizeof(List));
        Py_CLEAR(group->loops);
    }
    DROP(groups);
    Py_RETURN_NONE;
}

/* -- the type Queue ------------------------------------------------------------------------ */

static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"lead", "alone", "through", "ended", "request", "write_dirty", "name",
                            "group_bytes", "pending_bytes", NULL};
    PyObject *calls[6], *name;
    Py_ssize_t group_bytes, pending_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OOOOOOUnn", names, &calls[0], &calls[1],
                                     &calls[2], &calls[3], &calls[4], &calls[5], &name,
                                     &group_bytes, &pending_bytes))
        return NULL;
    Queue *queue = (Queue *)PyType_GenericAlloc(type, 0);
    if (!queue)
        return NULL;
    PyObject **places[6] = {&queue->lead, &queue->alone, &queue->through, &queue->ended,
                            &queue->request, &queue->write_dirty};
    for (int one = 0; one < 6; one++)
        *places[one] = Py_NewRef(calls[one]);
    queue->name = Py_NewRef(name);
    queue->group_bytes = group_bytes;
    queue->pending_bytes = pending_bytes;
    queue->relay_next = RELAY_MIN;
    queue->dirty = PyList_New(0);
    queue->unsynced = PyList_New(0);
    queue->current = queue->dirty && queue->unsynced ? new_group(queue) : NULL;
    if (!queue->current)
        Py_CLEAR(queue);
    return (PyObject *)queue;
}

static int queue_traverse(Queue *queue, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)queue));
    Py_VISIT(queue->lead);
    Py_VISIT(queue->alone);
    Py_VISIT(queue->through);
    Py_VISIT(queue->ended);
    Py_VISIT(queue->request);
    Py_VISIT(queue->write_dirty);
    Py_VISIT(queue->stop);
    Py_VISIT(queue->current);
    Py_VISIT(queue->dirty);
    Py_VISIT(queue->unsynced);
    return 0;
}

/* The lists stay: a method that a finalizer calls finds a queue that is whole. */
static int queue_clear(Queue *queue)
{
    Py_CLEAR(queue->lead);
    Py_CLEAR(queue->alone);
    Py_CLEAR(queue->through);
    Py_CLEAR(queue->ended);
    Py_CLEAR(queue->request);
    Py_CLEAR(queue->write_dirty);
    return 0;
}

static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    DROP(type);
}

static void queue_dealloc(Queue *queue)
{
    PyObject_GC_UnTrack(queue);
    queue_clear(queue);
    Py_CLEAR(queue->current);
    Py_CLEAR(queue->dirty);
    Py_CLEAR(queue->unsynced);
    Py_CLEAR(queue->stop);
    Py_CLEAR(queue->name);
    free_object((PyObject *)queue);
}

static PyObject *queue_owned(Queue *queue, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(queue->owner == PyThread_get_thread_ident());
}

static PyObject *queue_stopped(Queue *queue, void *Py_UNUSED(closure))
{
    return Py_NewRef(queue->stop ? queue->stop : Py_None);
}

static PyObject *queue_refuse_if_stopped(Queue *queue, PyObject *Py_UNUSED(none))
{
    return queue->stop ? raise_copy(queue->stop) : Py_NewRef(Py_None);
}

static PyObject *queue_current_count(Queue *queue, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(PyList_Size(queue->current->items));
}

#define METHOD(name, flags) {#name, (PyCFunction)(void (*)(void))queue_##name, flags, NULL}
static PyMethodDef queue_methods[] = {
    METHOD(submit, METH_FASTCALL),       METHOD(commit, METH_FASTCALL),
    METHOD(wait_for, METH_VARARGS),      METHOD(wait_for_woken, METH_NOARGS),
    METHOD(acquire, METH_NOARGS),        METHOD(try_acquire, METH_NOARGS),
    METHOD(release, METH_NOARGS),        METHOD(take, METH_NOARGS),
    METHOD(finish, METH_VARARGS),        METHOD(refuse, METH_VARARGS),
    METHOD(stop, METH_O),                METHOD(unfinished, METH_NOARGS),
    METHOD(forget_waiters, METH_NOARGS), METHOD(refuse_if_stopped, METH_NOARGS),
    {NULL}};
static PyMemberDef queue_members[] = {
    {"unsynced", T_OBJECT, offsetof(Queue, unsynced), READONLY, NULL},
    {"pending", T_PYSSIZET, offsetof(Queue, pending), READONLY, NULL},
    {NULL}};
static PyGetSetDef queue_getters[] = {{"owned", (getter)queue_owned, NULL, NULL, NULL},
                                      {"stopped", (getter)queue_stopped, NULL, NULL, NULL},
                                      {"count", (getter)queue_current_count, NULL, NULL, NULL},
                                      {NULL}};
static PyType_Slot queue_slots[] = {{Py_tp_new, queue_new},
                                    {Py_tp_dealloc, queue_dealloc},
                                    {Py_tp_traverse, queue_traverse},
                                    {Py_tp_clear, queue_clear},
                                    {Py_tp_methods, queue_methods},
                                    {Py_tp_members, queue_members},
                                    {Py_tp_getset, queue_getters},
                                    {0, NULL}};
static PyType_Spec queue_spec = {"tallystick_fast.Queue", sizeof(Queue), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, queue_slots};

/* -- the type Group ------------------------------------------------------------------------ */

static int group_traverse(Group *group, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)group));
    Py_VISIT(group->queue);
    Py_VISIT(group->items);
    Py_VISIT(group->error);
    Py_VISIT(group->lsns);
    Py_VISIT(group->loops);
    return 0;
}

static int group_clear(Group *group)
{
    Py_CLEAR(group->queue);
    Py_CLEAR(group->error);
    Py_CLEAR(group->loops);
    return 0;
}

static void group_dealloc(Group *group)
{
    PyObject_GC_UnTrack(group);
    group_clear(group);
    Py_CLEAR(group->items);
    Py_CLEAR(group->lsns);
    free_object((PyObject *)group);
}

static PyMemberDef group_members[] = {{"items", T_OBJECT, offsetof(Group, items), READONLY, NULL},
                                      {"error", T_OBJECT, offsetof(Group, error), READONLY, NULL},
                                      {"lsns", T_OBJECT, offsetof(Group, lsns), 0, NULL},
                                      {"bytes", T_PYSSIZET, offsetof(Group, bytes), READONLY, NULL},
                                      {"sync", T_BOOL, offsetof(Group, sync), READONLY, NULL},
                                      {NULL}};
static PyType_Slot group_slots[] = {{Py_tp_dealloc, group_dealloc},
                                    {Py_tp_traverse, group_traverse},
                                    {Py_tp_clear, group_clear},
                                    {Py_tp_members, group_members},
                                    {0, NULL}};
static PyType_Spec group_spec = {
    "tallystick_fast.Group", sizeof(Group), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, group_slots};

/* -- the type Ticket ----------------------------------------------------------------------- */

/* The garbage collector takes the queue from the groups of a log that was never closed. */
static int has_queue(Group *group)
{
    if (!group->queue)
        PyErr_SetString(PyExc_RuntimeError, "the log of this ticket is gone");
    return group->queue ? 0 : -1;
}

static PyObject *ticket_wait(Ticket *ticket, PyObject *args, PyObject *named)
{
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = Py_None;
    Group *group = ticket->group;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|O", names, &timeout))
        return NULL;
    if (!group->finished) {
        int64_t until = deadline_of(timeout);
        if (until < 0 || has_queue(group) < 0 || wait_for(group->queue, group, until) < 0)
            return NULL;
    }
    return outcome(group, ticket->index);
}

static PyObject *ticket_done(Ticket *ticket, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(ticket->group->finished);
}

static PyObject *ticket_start_flush(Ticket *ticket, PyObject *Py_UNUSED(none))
{
    Group *group = ticket->group;
    if (group->finished)
        Py_RETURN_NONE;
    if (has_queue(group) < 0)
        return NULL;
    group->requested = 1; /* first: a running flush reads it after it has released the lock */
    return PyObject_CallNoArgs(group->queue->request);
}

static PyObject *ticket_await(Ticket *ticket)
{
    Await *await = (Await *)PyType_GenericAlloc(AwaitType, 0);
    if (await) {
        await->group = (Group *)Py_NewRef((PyObject *)ticket->group);
        await->index = ticket->index;
    }
    return (PyObject *)await;
}

static void ticket_dealloc(Ticket *ticket)
{
    Py_CLEAR(ticket->group);
    free_object((PyObject *)ticket);
}

static PyMethodDef ticket_methods[] = {
    {"wait", (PyCFunction)(void (*)(void))ticket_wait, METH_VARARGS | METH_KEYWORDS, NULL},
    {"done", (PyCFunction)ticket_done, METH_NOARGS, NULL},
    {"start_flush", (PyCFunction)ticket_start_flush, METH_NOARGS, NULL},
    {NULL}};
static PyType_Slot ticket_slots[] = {{Py_tp_dealloc, ticket_dealloc},
                                     {Py_tp_methods, ticket_methods},
                                     {Py_am_await, ticket_await},
                                     {0, NULL}};
static PyType_Spec ticket_spec = {"tallystick_fast.Ticket", sizeof(Ticket), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  ticket_slots};

/* -- the type Loop ------------------------------------------------------------------------- */

/* Run every task on, in the order in which they came to wait. */
static PyObject *loop_wake(Loop *loop, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(named))
{
    while (loop->place < PyList_Size(loop->tasks)) {
        Await *await = (Await *)PyList_GetItem(loop->tasks, loop->place++);
        PyObject *wake = await->wake;
        if (!wake)
            continue; /* cancelled */
        await->wake = NULL;
        KEEP(await);
        PyObject *done = PyObject_CallMethodObjArgs(await->context, s_run, wake, await, NULL);
        DROP(wake);
        DROP(await);
        if (done) {
            DROP(done);
            continue;
        }
        /* The task has stopped the loop, by SystemExit or an interrupt. */
        PyObject *kind, *error, *trace;
        PyErr_Fetch(&kind, &error, &trace);
        XDROP(PyObject_CallMethodObjArgs(loop->loop, s_call_soon, loop, NULL));
        PyErr_Restore(kind, error, trace);
        return NULL;
    }
    Py_RETURN_NONE;
}

static int loop_traverse(Loop *loop, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)loop));
    Py_VISIT(loop->loop);
    Py_VISIT(loop->tasks);
    return 0;
}

static int loop_clear(Loop *loop)
{
    Py_CLEAR(loop->loop);
    return 0;
}

static void loop_dealloc(Loop *loop)
{
    PyObject_GC_UnTrack(loop);
    loop_clear(loop);
    Py_CLEAR(loop->tasks);
    free_object((PyObject *)loop);
}

static PyType_Slot loop_slots[] = {{Py_tp_dealloc, loop_dealloc},
                                   {Py_tp_traverse, loop_traverse},
                                   {Py_tp_clear, loop_clear},
                                   {Py_tp_call, loop_wake},
                                   {0, NULL}};
static PyType_Spec loop_spec = {
    "tallystick_fast.Loop", sizeof(Loop), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, loop_slots};

/* -- the type Await ------------------------------------------------------------------------ */

/* Return the tasks of this loop that wait for the group, by a borrowed reference; NULL without an
   exception if the group is finished. */
static Loop *loop_of(Group *group, PyObject *event_loop)
{
    Py_ssize_t count = group->loops ? PyList_Size(group->loops) : 0;
    for (Py_ssize_t place = 0; place < count; place++) {
        Loop *loop = (Loop *)PyList_GetItem(group->loops, place);
        if (loop->loop == event_loop)
            return loop;
    }
    if (has_queue(group) < 0)
        return NULL;
    Loop *loop = (Loop *)PyType_GenericAlloc(LoopType, 0);
    PyObject *loops = PyList_New(0);
    if (loop) {
        loop->loop = Py_NewRef(event_loop);
        loop->tasks = PyList_New(0);
    }
    if (loops && !group->loops && !group->finished)
        group->loops = Py_NewRef(loops);
    if (loop && loop->tasks && group->loops && !group->finished &&
        PyList_Append(group->loops, (PyObject *)loop) == 0) {
        /* In the loop's next round: by then every task that is ready now has submitted. */
        Queue *queue = (Queue *)Py_NewRef((PyObject *)group->queue);
        XDROP(PyObject_CallMethodObjArgs(event_loop, s_call_soon, queue->request, NULL));
        DROP(queue);
    }
    XDROP(loops);
    XDROP(loop); /* the list has it */
    return PyErr_Occurred() || group->finished ? NULL : loop;
}

/* Return the task's future, or NULL: with *result, or with an exception. */
static PyObject *await_step(Await *await, PyObject **result)
{
    Group *group = await->group;
    *result = NULL;
    if (!group->finished) {
        if (!await->loop && !(await->loop = PyObject_CallNoArgs(get_running_loop)))
            return NULL;
        Loop *loop = loop_of(group, await->loop);
        if (loop) {
            await->blocking = 1;
            return PyList_Append(loop->tasks, (PyObject *)await) < 0 ? NULL
                                                                    : Py_NewRef((PyObject *)await);
        }
        if (PyErr_Occurred())
            return NULL;
    }
    *result = outcome(group, await->index);
    return NULL;
}

static PySendResult await_send(Await *await, PyObject *Py_UNUSED(value), PyObject **result)
{
    PyObject *future = await_step(await, result);
    if (future) {
        *result = future;
        return PYGEN_NEXT;
    }
    return *result ? PYGEN_RETURN : PYGEN_ERROR;
}

static PyObject *await_next(Await *await)
{
    PyObject *result, *future = await_step(await, &result);
    if (result) {
        PyErr_SetObject(PyExc_StopIteration, result);
        DROP(result);
    }
    return future;
}

static PyObject *await_add_done_callback(Await *await, PyObject *const *args, Py_ssize_t count,
                                         PyObject *names)
{
    if (!takes(count, 1))
        return NULL;
    if (!names || PyTuple_Size(names) != 1 ||
        PyUnicode_Compare(PyTuple_GetItem(names, 0), s_context)) {
        PyErr_SetString(PyExc_TypeError, "a context is due");
        return NULL;
    }
    PyObject *wake = await->wake, *context = await->context;
    await->wake = Py_NewRef(args[0]);
    await->context = Py_NewRef(args[1]);
    XDROP(wake);
    XDROP(context);
    Py_RETURN_NONE;
}

static PyObject *await_cancel(Await *await, PyObject *args, PyObject *named)
{
    static char *names[] = {"msg", NULL};
    PyObject *message = Py_None, *done, *call;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|O", names, &message))
        return NULL;
    if (!await->wake)
        Py_RETURN_FALSE;
    PyObject *wake = await->wake;
    await->wake = NULL;
    await->cancelled = 1;
    XDROP(await->message);
    await->message = Py_NewRef(message);
    call = PyObject_GetAttr(await->loop, s_call_soon);
    PyObject *positional = PyTuple_Pack(2, wake, await);
    PyObject *keywords = PyDict_New();
    done = call && positional && keywords &&
                   PyDict_SetItem(keywords, s_context, await->context) == 0
               ? PyObject_Call(call, positional, keywords)
               : NULL;
    XDROP(keywords), XDROP(positional), XDROP(call), DROP(wake);
    XDROP(done);
    return done ? Py_NewRef(Py_True) : NULL;
}

/* The outcome of the group is the ticket's; this is only to raise in a cancelled task. */
static PyObject *await_result(Await *await, PyObject *Py_UNUSED(none))
{
    if (!await->cancelled)
        Py_RETURN_NONE;
    PyObject *message = await->message == Py_None ? NULL : await->message;
    PyObject *error = PyObject_CallFunctionObjArgs(cancelled_error, message, NULL);
    if (error) {
        PyErr_SetObject(cancelled_error, error);
        DROP(error);
    }
    return NULL;
}

static int await_traverse(Await *await, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)await));
    Py_VISIT(await->group);
    Py_VISIT(await->loop);
    Py_VISIT(await->wake);
    Py_VISIT(await->context);
    Py_VISIT(await->message);
    return 0;
}

static int await_clear(Await *await)
{
    Py_CLEAR(await->loop);
    Py_CLEAR(await->wake);
    Py_CLEAR(await->context);
    Py_CLEAR(await->message);
    return 0;
}

static void await_dealloc(Await *await)
{
    PyObject_GC_UnTrack(await);
    await_clear(await);
    Py_CLEAR(await->group);
    free_object((PyObject *)await);
}

static PyMethodDef await_methods[] = {
    {"add_done_callback", (PyCFunction)(void (*)(void))await_add_done_callback,
     METH_FASTCALL | METH_KEYWORDS, NULL},
    {"cancel", (PyCFunction)(void (*)(void))await_cancel, METH_VARARGS | METH_KEYWORDS, NULL},
    {"result", (PyCFunction)await_result, METH_NOARGS, NULL},
    {NULL}};
static PyMemberDef await_members[] = {
    {"_asyncio_future_blocking", T_BOOL, offsetof(Await, blocking), 0, NULL},
    {"_loop", T_OBJECT, offsetof(Await, loop), READONLY, NULL},
    {NULL}};
static PyType_Slot await_slots[] = {{Py_tp_dealloc, await_dealloc},
                                    {Py_tp_traverse, await_traverse},
                                    {Py_tp_clear, await_clear},
                                    {Py_tp_iter, PyObject_SelfIter},
                                    {Py_tp_iternext, await_next},
                                    {Py_am_send, await_send},
                                    {Py_tp_methods, await_methods},
                                    {Py_tp_members, await_members},
                                    {0, NULL}};
static PyType_Spec await_spec = {
    "tallystick_fast.Await", sizeof(Await), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, await_slots};

/* -- one plain record of the native log ---------------------------------------------------- */

#define PLAIN_MAX 8192  /* bytes of a body; above, the library's checksum is the faster one */
#define HEADER 128      /* docs/formats/tally.md; tests compare every byte with the twin's */
#define TAG 16          /* room that the twin leaves for an encryption's tag */
#define APPEND_COLUMNS 0x10000u

static uint32_t crc_table[8][256];

static void make_crc_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        crc_table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int row = 1; row < 8; row++)
            crc_table[row][byte] =
                crc_table[row - 1][byte] >> 8 ^ crc_table[0][crc_table[row - 1][byte] & 0xFF];
}

static uint32_t crc32(const unsigned char *data, size_t size)
{
    uint32_t crc = ~0u;
    for (; size >= 8; size -= 8, data += 8) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
        low ^= crc;
        crc = crc_table[7][low & 0xFF] ^ crc_table[6][low >> 8 & 0xFF] ^
              crc_table[5][low >> 16 & 0xFF] ^ crc_table[4][low >> 24] ^
              crc_table[3][high & 0xFF] ^ crc_table[2][high >> 8 & 0xFF] ^
              crc_table[1][high >> 16 & 0xFF] ^ crc_table[0][high >> 24];
    }
    while (size--)
        crc = crc >> 8 ^ crc_table[0][(crc ^ *data++) & 0xFF];
    return ~crc;
}

enum { SEGMENT, END, NEXT_LSN, DURABLE_LSN, TIME, CHAIN, NUMBERS, FILE_ = NUMBERS, FD, INDEX, DIRTY,
       MARKED, NAMES };
static const char *const plain_names[NAMES] = {
    "segment", "end", "next_lsn", "durable_lsn", "time_us", "chain",
    "_file",   "_fd", "index",    "_dirty",      "marked"};
static PyObject *names_of[NAMES];

typedef struct {
    PyObject_HEAD
    PyObject *appender, *plain_lsns, *file_type;
    long long sector, segment_size, entry;
    uint32_t shard;
    char tag[8];
} Plain;

typedef struct __attribute__((packed)) {
    char magic[8];
    uint16_t version, flags;
    uint32_t length;
    uint64_t segment, offset, first_lsn;
    uint32_t count, columns, stored, raw;
    int64_t time_us;
    uint64_t durable_lsn;
    uint32_t crc, chain;
    char nonce[12];
    uint32_t shard;
    char tag[8], zeros[20];
    uint32_t checksum;
} Header;
_Static_assert(sizeof(Header) == HEADER, "the header of docs/formats/tally.md");

static long long up(long long size, long long sector) { return (size + sector - 1) / sector * sector; }

static int set_number(PyObject *target, int name, long long value)
{
    PyObject *number = PyLong_FromLongLong(value);
    int failed = number ? PyObject_SetAttr(target, names_of[name], number) : -1;
    XDROP(number);
    return failed;
}

/* Return the descriptor of the file, or -1: only a real file, never one of another class. */
static int plain_descriptor(Plain *plain)
{
    PyObject *dirty = PyObject_GetAttr(plain->appender, names_of[DIRTY]);
    PyObject *file = PyObject_GetAttr(plain->appender, names_of[FILE_]), *number = NULL;
    long fd = -1;
    if (dirty == Py_False && file && (PyObject *)Py_TYPE(file) == plain->file_type &&
        (number = PyObject_GetAttr(file, names_of[FD])))
        fd = PyLong_AsLong(number);
    XDROP(dirty), XDROP(file), XDROP(number);
    return (int)fd;
}

/* Write all and sync; return 0, or an errno; *written is 1 once all was written. */
static int write_and_sync(int fd, const char *data, long long size, long long offset, int *written)
{
    for (long long done = 0; done < size;) {
        ssize_t some = pwrite(fd, data + done, (size_t)(size - done), offset + done);
        if (some < 0 && errno != EINTR)
            return errno;
        done += some > 0 ? some : 0;
    }
    *written = 1;
    while (fdatasync(fd) < 0)
        if (errno != EINTR)
            return errno;
    return 0;
}

static int plain_note(Plain *plain, const long long *at, const Header *header, int failed)
{
    PyObject *self = plain->appender, *index = PyObject_GetAttr(self, names_of[INDEX]);
    PyObject *entry = Py_BuildValue("LLL", at[END], at[NEXT_LSN], (long long)header->time_us);
    PyObject *segment = PyLong_FromLongLong(at[SEGMENT]), *lsn = PyLong_FromLongLong(at[NEXT_LSN]);
    int bad = !index || !entry || !segment || !lsn || PyList_Append(index, entry) < 0 ||
              set_number(self, END, at[END] + header->length) < 0 ||
              set_number(self, NEXT_LSN, at[NEXT_LSN] + 1) < 0 ||
              set_number(self, CHAIN, header->checksum) < 0 ||
              set_number(self, TIME, header->time_us) < 0 ||
              PyObject_SetAttr(self, names_of[MARKED], Py_False) < 0 ||
              PyDict_SetItem(plain->plain_lsns, segment, lsn) < 0 ||
              (failed ? PyObject_SetAttr(self, names_of[DIRTY], Py_True)
                      : PyObject_SetAttr(self, names_of[DURABLE_LSN], lsn)) < 0;
    XDROP(index), XDROP(entry), XDROP(segment), XDROP(lsn);
    return bad;
}

/* Write and sync a group of one plain record; None if the twin has to do it. */
static PyObject *plain_call(Plain *plain, PyObject *args, PyObject *Py_UNUSED(named))
{
    PyObject *body = PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : Py_None;
    Py_ssize_t size = PyBytes_CheckExact(body) ? PyBytes_Size(body) : PLAIN_MAX + 1;
    int fd = size <= PLAIN_MAX ? plain_descriptor(plain) : -1;
    long long at[NUMBERS];
    for (int one = 0; fd >= 0 && one < NUMBERS; one++) {
        PyObject *number = PyObject_GetAttr(plain->appender, names_of[one]);
        at[one] = number ? PyLong_AsLongLong(number) : -1;
        XDROP(number);
    }
    PyObject *index = fd >= 0 ? PyObject_GetAttr(plain->appender, names_of[INDEX]) : NULL;
    long long stored = size + 8, entries = index ? (PyList_Size(index) + 1) * plain->entry : 0;
    XDROP(index);
    if (PyErr_Occurred())
        return NULL;
    if (fd < 0 || at[END] + up(stored + TAG + 2 * HEADER, plain->sector) +
                          up(entries + 2 * HEADER, plain->sector) > plain->segment_size)
        Py_RETURN_NONE;
    char data[PLAIN_MAX + 2 * HEADER + 8 + 4096];
    long long length = up(stored + 2 * HEADER, plain->sector), time_us;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time_us = (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    int32_t offsets[2] = {0, (int32_t)size};
    memcpy(data + HEADER, offsets, 8);
    memcpy(data + HEADER + 8, PyBytes_AsString(body), (size_t)size);
    memset(data + HEADER + stored, 0, (size_t)(length - stored - HEADER));
    Header header = {
        .magic = "\x89TLYG\r\n\x1a", .version = 1, .length = (uint32_t)length,
        .segment = (uint64_t)at[SEGMENT], .offset = (uint64_t)at[END],
        .first_lsn = (uint64_t)at[NEXT_LSN], .count = 1, .columns = APPEND_COLUMNS,
        .stored = (uint32_t)stored, .raw = (uint32_t)stored,
        .time_us = time_us > at[TIME] ? time_us : at[TIME],
        .durable_lsn = (uint64_t)at[DURABLE_LSN], .chain = (uint32_t)at[CHAIN],
        .shard = plain->shard};
    memcpy(header.tag, plain->tag, 8);
    header.crc = crc32((unsigned char *)data + HEADER, (size_t)(length - 2 * HEADER));
    header.checksum = crc32((unsigned char *)&header, HEADER - 4);
    memcpy(data, &header, HEADER);
    memcpy(data + length - HEADER, &header, HEADER);
    int written = 0, error;
    PyThreadState *state = PyEval_SaveThread();
    error = write_and_sync(fd, data, length, at[END], &written);
    PyEval_RestoreThread(state);
    if (written && plain_note(plain, at, &header, error))
        return NULL;
    if (error) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromLongLong(at[NEXT_LSN]);
}

static PyObject *plain_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"appender", "plain_lsns", "file_type", "sector", "segment_size",
                            "entry", "shard", "tag", NULL};
    PyObject *appender, *plain_lsns, *file_type;
    long long sector, segment_size, entry;
    unsigned int shard;
    const char *tag;
    Py_ssize_t tag_size;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OO!OLLLIy#", names, &appender, &PyDict_Type,
                                     &plain_lsns, &file_type, &sector, &segment_size, &entry,
                                     &shard, &tag, &tag_size))
        return NULL;
    if (sector < 512 || sector > 4096 || tag_size != 8) {
        PyErr_SetString(PyExc_ValueError, "a sector of 512 to 4096 bytes and a tag of 8 are due");
        return NULL;
    }
    Plain *plain = (Plain *)PyType_GenericAlloc(type, 0);
    if (plain) {
        plain->appender = Py_NewRef(appender);
        plain->plain_lsns = Py_NewRef(plain_lsns);
        plain->file_type = Py_NewRef(file_type);
        plain->sector = sector;
        plain->segment_size = segment_size;
        plain->entry = entry;
        plain->shard = shard;
        memcpy(plain->tag, tag, 8);
    }
    return (PyObject *)plain;
}

static int plain_traverse(Plain *plain, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)plain));
    Py_VISIT(plain->appender);
    Py_VISIT(plain->plain_lsns);
    Py_VISIT(plain->file_type);
    return 0;
}

static void plain_dealloc(Plain *plain)
{
    PyObject_GC_UnTrack(plain);
    Py_CLEAR(plain->appender);
    Py_CLEAR(plain->plain_lsns);
    Py_CLEAR(plain->file_type);
    free_object((PyObject *)plain);
}

static PyType_Slot plain_slots[] = {{Py_tp_new, plain_new},
                                    {Py_tp_dealloc, plain_dealloc},
                                    {Py_tp_traverse, plain_traverse},
                                    {Py_tp_call, plain_call},
                                    {0, NULL}};
static PyType_Spec plain_spec = {"tallystick_fast.Plain", sizeof(Plain), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, plain_slots};

/* -- the module ---------------------------------------------------------------------------- */

static PyObject *attribute(const char *module, const char *name)
{
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *found = imported ? PyObject_GetAttrString(imported, name) : NULL;
    XDROP(imported);
    return found;
}

/* Set the two functions of the main package that make the errors of callers. */
static PyObject *set_errors(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *copy, *usage;
    if (!PyArg_ParseTuple(args, "OO", &copy, &usage))
        return NULL;
    XDROP(copy_error), XDROP(usage_error);
    copy_error = Py_NewRef(copy);
    usage_error = Py_NewRef(usage);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"set_errors", set_errors, METH_VARARGS, NULL}, {NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "tallystick_fast",
                                        "The compiled core of Tallystick.", -1, functions,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_tallystick_fast(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    make_crc_table();
    for (int one = 0; one < NAMES; one++)
        names_of[one] = PyUnicode_InternFromString(plain_names[one]);
    s_call_soon = PyUnicode_InternFromString("call_soon");
    s_threadsafe = PyUnicode_InternFromString("call_soon_threadsafe");
    s_run = PyUnicode_InternFromString("run");
    s_context = PyUnicode_InternFromString("context");
    get_running_loop = attribute("asyncio", "get_running_loop");
    cancelled_error = attribute("asyncio", "CancelledError");
    GroupType = (PyTypeObject *)PyType_FromSpec(&group_spec);
    TicketType = (PyTypeObject *)PyType_FromSpec(&ticket_spec);
    LoopType = (PyTypeObject *)PyType_FromSpec(&loop_spec);
    AwaitType = (PyTypeObject *)PyType_FromSpec(&await_spec);
    PyObject *queue = PyType_FromSpec(&queue_spec), *plain = PyType_FromSpec(&plain_spec);
    if (PyErr_Occurred() || PyModule_AddObjectRef(module, "Queue", queue) < 0 ||
        PyModule_AddObjectRef(module, "Plain", plain) < 0 ||
        PyModule_AddObjectRef(module, "Group", (PyObject *)GroupType) < 0 ||
        PyModule_AddObjectRef(module, "Ticket", (PyObject *)TicketType) < 0 ||
        PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0)
        Py_CLEAR(module);
    XDROP(queue), XDROP(plain);
    return module;
}
