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

#define INTERFACE 2     /* the main package refuses another number */
#define STALL_NS 200000 /* time without a wake-up after which a chain is stalled */
#define CHAIN_MIN 4     /* fewer threads than that wake each other at once */
#define RELAY_MIN 16    /* groups without a chain after a stall; doubles with each */
#define RELAY_MAX 4096
#define WAIT_FLUSHES 2.0   /* longest wait of a leader, in durations of the last flush ... */
#define WAIT_SECONDS 0.005 /* ... and in seconds */

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

/* The waiter may be gone after the store: its address is then only a number to the kernel. */
static void call(Waiter *waiter) {
    uint32_t *word = &waiter->called;
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    futex(word, FUTEX_WAKE, 1, NULL);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static struct timespec at_ns(int64_t ns) {
    struct timespec at = {ns / 1000000000, ns % 1000000000};
    return at;
}

/* -- objects ------------------------------------------------------------------------------- */

/* Every object begins with its references; the garbage collector clears the first ones of them. */
#define OBJECT PyObject_HEAD short references, cleared;

typedef struct {
    OBJECT PyObject *reference[];
} Object;

typedef struct {
    OBJECT PyObject *lead, *alone, *through, *ended, *request, *write_dirty;
    PyObject *groups; /* unsynced ones, dirty ones, the current one: never empty */
    PyObject *stop;   /* the first cause, or NULL */
    PyObject *name;
    Py_ssize_t unsynced, dirty_bytes, group_bytes, pending_bytes;
    unsigned long owner;    /* thread that owns the flush lock, 0 for none */
    List lockers;           /* threads that wait for the flush lock */
    List chain;             /* threads of finished groups, to be woken one after the other */
    Py_ssize_t pending;     /* threads that are in the chain, or woken and not back yet */
    uint32_t back;          /* futex word: changes when `pending` becomes 0 */
    uint32_t passes;        /* wake-ups along the chain */
    int failed;             /* `stop` is what failed, and not yet what callers get */
    int watched;            /* the leader is a thread that will watch the chain */
    long relay, relay_next; /* groups still without a chain; how many after the next stall */
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

typedef struct { /* the tasks of one loop that wait for one group */
    OBJECT PyObject *loop, *tasks;
    Py_ssize_t place;
} Loop;

typedef struct { /* iterator of a ticket, and what its task sees in place of a future */
    OBJECT PyObject *loop, *wake, *context, *message;
    Group *group;
    Py_ssize_t index;
    char blocking, cancelled;
} Await;

static PyTypeObject *GroupType, *TicketType, *LoopType, *AwaitType;
static PyObject *get_running_loop, *copy_error, *usage_error, *cancelled_error;
static PyObject *s_call_soon, *s_threadsafe, *s_run, *s_context;

static void *allocate(PyTypeObject *type, short references, short cleared) {
    Object *self = (Object *)PyType_GenericAlloc(type, 0);
    if (self) {
        self->references = references;
        self->cleared = cleared;
    }
    return self;
}

static int object_traverse(Object *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    for (int one = 0; one < self->references; one++) Py_VISIT(self->reference[one]);
    return 0;
}

/* The rest stays: a method that a finalizer calls finds an object that is whole. */
static int object_clear(Object *self) {
    for (int one = 0; one < self->cleared; one++) Py_CLEAR(self->reference[one]);
    return 0;
}

static void object_dealloc(Object *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    for (int one = 0; one < self->references; one++) Py_CLEAR(self->reference[one]);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    DROP(type);
}

#define COMMON                                                                                     \
    {Py_tp_dealloc, object_dealloc}, {Py_tp_traverse, object_traverse}, {                          \
        Py_tp_clear, object_clear                                                                  \
    }

static Group *new_group(Queue *queue) {
    Group *group = allocate(GroupType, 5, 3);
    if (group && !(group->items = PyList_New(0))) {
        DROP(group);
        return NULL;
    }
    if (group) group->queue = (Queue *)Py_NewRef((PyObject *)queue);
    return group;
}

/* Raise what the function makes of the object. */
static PyObject *raise_made(PyObject *function, PyObject *object) {
    PyObject *error = PyObject_CallFunctionObjArgs(function, object, NULL);
    if (error) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        DROP(error);
    }
    return NULL;
}

static PyObject *raise_copy(PyObject *error) { return raise_made(copy_error, error); }

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

static Waiter *next_in_chain(Queue *queue) {
    Waiter *waiter = pop(&queue->chain);
    if (waiter) __atomic_add_fetch(&queue->passes, 1, __ATOMIC_RELAXED);
    return waiter;
}

static void pass_on(Queue *queue) {
    Waiter *waiter = next_in_chain(queue);
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
    return PyList_Size(group->items) && (group->requested || group->loops);
}

/* I5: call a thread that can lead, if the flush lock is free and no chain will do it at its end. */
static void call_leader(Queue *queue) {
    if (queue->owner || queue->chain.count) return;
    Group *group = find_group(queue, has_waiters);
    if (group) call(pop(&group->waiters));
}

enum { CALLED, INTERRUPTED, LATE, STALLED };

/* Sleep until called, interrupted by a signal, or `until` (0: no limit), without the interpreter
   lock; the next one of the chain is woken first. With `watch`, return when the chain stalls. */
static int park(Queue *queue, Waiter *waiter, int64_t until, int watch) {
    Waiter *next = next_in_chain(queue);
    int how = CALLED;
    PyThreadState *state = PyEval_SaveThread();
    if (next) call(next);
    uint32_t seen = __atomic_load_n(&queue->passes, __ATOMIC_RELAXED);
    while (!__atomic_load_n(&waiter->called, __ATOMIC_ACQUIRE)) {
        struct timespec at = at_ns(watch ? now_ns() + STALL_NS : until);
        if (!futex(&waiter->called, FUTEX_WAIT_BITSET, 0, until || watch ? &at : NULL)) continue;
        uint32_t passes = __atomic_load_n(&queue->passes, __ATOMIC_RELAXED);
        if (errno == EINTR)
            how = INTERRUPTED;
        else if (errno == ETIMEDOUT && !watch)
            how = LATE;
        else if (errno == ETIMEDOUT && passes == seen)
            how = STALLED;
        seen = passes;
        if (how != CALLED) break;
    }
    PyEval_RestoreThread(state);
    return how;
}

/* A thread that was acknowledged runs again: it keeps the chain going, and I5. */
static void came_back(Queue *queue) {
    if (--queue->pending == 0) {
        __atomic_add_fetch(&queue->back, 1, __ATOMIC_RELEASE);
        futex(&queue->back, FUTEX_WAKE, INT_MAX, NULL);
    }
    if (queue->relay || !queue->watched) pass_on(queue);
    call_leader(queue);
}

/* A waiter that was taken out of its list is called soon: it must exist until then. */
static void leave(Queue *queue, Waiter *waiter) {
    if (waiter->list)
        unlink_waiter(waiter);
    else if (!__atomic_load_n(&waiter->called, __ATOMIC_ACQUIRE)) {
        PyThreadState *state = PyEval_SaveThread();
        while (!__atomic_load_n(&waiter->called, __ATOMIC_ACQUIRE))
            futex(&waiter->called, FUTEX_WAIT_BITSET, 0, NULL);
        PyEval_RestoreThread(state);
    }
    if (waiter->counted) came_back(queue);
    free(waiter);
}

static Waiter *new_waiter(void) {
    Waiter *waiter = calloc(1, sizeof *waiter);
    if (!waiter) PyErr_NoMemory();
    return waiter;
}

/* -- the flush lock ------------------------------------------------------------------------ */

static int refuse_owner(Queue *queue) {
    if (queue->owner != PyThread_get_thread_ident()) return 0;
    raise_made(usage_error, queue->name);
    return -1;
}

static void release(Queue *queue) {
    Waiter *locker = queue->lockers.first;
    queue->owner = 0;
    if (locker) {
        /* Handed over: a thread that waits for the lock would else never win against leaders. */
        queue->owner = ULONG_MAX;
        call(pop(&queue->lockers));
    } else
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
        XDROP(PyObject_CallNoArgs(queue->request));
        PyErr_Restore(kind, error, trace);
    }
}

static int acquire(Queue *queue) {
    if (refuse_owner(queue) < 0) return -1;
    if (queue->owner) {
        Waiter *waiter = new_waiter();
        int how, broken;
        if (!waiter) return -1;
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

static PyObject *queue_acquire(Queue *queue, PyObject *Py_UNUSED(none)) {
    return acquire(queue) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *queue_try_acquire(Queue *queue, PyObject *Py_UNUSED(none)) {
    if (queue->owner) Py_RETURN_FALSE;
    queue->owner = PyThread_get_thread_ident();
    Py_RETURN_TRUE;
}

/* -- leading and waiting ------------------------------------------------------------------- */

/* Watch the chain as its last member, until it has ended or stalls. */
static int watch_chain(Queue *queue) {
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
        if (queue->relay_next < RELAY_MAX) queue->relay_next *= 2;
    } else if (queue->relay_next > RELAY_MIN)
        queue->relay_next--;
    queue->watched = 0;
    leave(queue, waiter); /* passes on, for nobody watches now */
    return how == INTERRUPTED ? PyErr_CheckSignals() : 0;
}

/* Flush; the callback releases the flush lock, whatever happens. */
static int lead(Queue *queue) {
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

static int64_t deadline_of(PyObject *timeout) {
    if (timeout == Py_None) return 0;
    double seconds = PyFloat_AsDouble(timeout);
    if (seconds == -1.0 && PyErr_Occurred()) return -1;
    seconds = seconds > 1e9 ? 1e9 : seconds > 0 ? seconds : 0; /* not a number: 0 */
    return now_ns() + (int64_t)(seconds * 1e9);
}

/* Sleep until the group is finished, or the thread may have to lead; -1 with an exception. */
static int sleep_for(Queue *queue, Group *group, int64_t until) {
    if (refuse_owner(queue) < 0) return -1;
    Waiter *waiter = new_waiter();
    if (!waiter) return -1;
    push(&group->waiters, waiter);
    int how = park(queue, waiter, until, 0);
    int failed = how == INTERRUPTED ? PyErr_CheckSignals() : 0;
    leave(queue, waiter);
    if (!group->finished && (failed || how == LATE)) {
        group->requested |= how == LATE;
        call_leader(queue); /* if this one was called to lead */
    }
    if (failed || how != LATE || group->finished) return failed;
    PyObject *done = PyObject_CallNoArgs(queue->request);
    if (done)
        PyErr_Format(PyExc_TimeoutError, "%U: not durable in time; it may still become so",
                     queue->name);
    XDROP(done);
    return -1;
}

static int wait_for(Queue *queue, Group *group, int64_t until) {
    int failed = 0;
    KEEP(queue);
    KEEP(group);
    while (!group->finished && !failed)
        failed = queue->owner || queue->chain.count ? sleep_for(queue, group, until) : lead(queue);
    DROP(group);
    DROP(queue);
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
    if (queue->pending && queue->wait_seconds > 0) {
        int64_t until = now_ns() + (int64_t)(queue->wait_seconds * 1e9);
        struct timespec at = at_ns(until);
        uint32_t seen = __atomic_load_n(&queue->back, __ATOMIC_ACQUIRE);
        Waiter *next = next_in_chain(queue);
        PyThreadState *state = PyEval_SaveThread();
        if (next) call(next);
        while (__atomic_load_n(&queue->back, __ATOMIC_ACQUIRE) == seen &&
               (!futex(&queue->back, FUTEX_WAIT_BITSET, seen, &at) || errno == EINTR));
        PyEval_RestoreThread(state);
    }
    Py_RETURN_NONE;
}

/* -- items --------------------------------------------------------------------------------- */

/* Make the current group dirty if an item of this size does not fit, or it must be written. */
static int rotate(Queue *queue, Py_ssize_t size) {
    Group *fresh = new_group(queue),
          *full = current(queue); /* in this order: the first may run threads */
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
    PyObject *done = PyObject_CallNoArgs(queue->write_dirty);
    XDROP(done);
    return done ? 0 : -1;
}

static int takes(Py_ssize_t count, Py_ssize_t due) {
    if (count != due) PyErr_Format(PyExc_TypeError, "%zd arguments are due, not %zd", due, count);
    return count == due;
}

static PyObject *queue_submit(Queue *queue, PyObject *const *args, Py_ssize_t count) {
    if (!takes(count, 3)) return NULL;
    PyObject *item = args[0];
    Py_ssize_t size = PyLong_AsSsize_t(args[1]);
    int sync = PyObject_IsTrue(args[2]);
    if (PyErr_Occurred()) return NULL;
    Ticket *ticket = allocate(TicketType, 1, 0);
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

/* Write and sync one item without a group; None: the log wants it done by `alone`. */
static PyObject *write_through(Queue *queue, PyObject *item, PyObject *size) {
    double began = (double)now_ns();
    PyObject *lsn = PyObject_CallFunctionObjArgs(queue->through, item, NULL);
    if (lsn == Py_None) return lsn;
    PyObject *taken = PyFloat_FromDouble(((double)now_ns() - began) / 1e9);
    PyObject *kind, *error, *trace, *done = NULL;
    PyErr_Fetch(&kind, &error, &trace);
    PyErr_NormalizeException(&kind, &error, &trace);
    if (error && !queue->stop) { /* until `ended` has its own: an interrupt may keep it from that */
        queue->stop = Py_NewRef(error);
        queue->failed = 1;
    }
    if (taken)
        done =
            PyObject_CallFunctionObjArgs(queue->ended, size, taken, error ? error : Py_None, NULL);
    XDROP(taken);
    XDROP(kind), XDROP(error), XDROP(trace);
    if (!done) Py_CLEAR(lsn);
    XDROP(done);
    return lsn;
}

static PyObject *queue_commit(Queue *queue, PyObject *const *args, Py_ssize_t count) {
    if (!takes(count, 2)) return NULL;
    PyObject *item = args[0], *lsn = NULL;
    Py_ssize_t index, size = PyLong_AsSsize_t(args[1]);
    if (size == -1 && PyErr_Occurred()) return NULL;
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
    if (!group) return NULL;
    KEEP(group);
    if (help_writing(queue) == 0 && wait_for(queue, group, 0) == 0) lsn = outcome(group, index);
    DROP(group);
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

/* Begin to wake the chain: its members go on with it. Its watcher begins by itself. */
static void begin_chain(Queue *queue) {
    if (!queue->chain.count) return;
    if (queue->relay) queue->relay--;
    if (queue->chain.count < CHAIN_MIN) queue->watched = 0;
    if (!queue->watched) pass_on(queue);
}

static void wake_loops(PyObject *groups) {
    for (Py_ssize_t place = 0; place < PyList_Size(groups); place++) {
        Group *group = group_at(groups, place);
        PyObject *loops = group->loops;
        Queue *queue = group->queue;
        group->loops = NULL;
        group->queue = NULL;
        Py_ssize_t count = loops ? PyList_Size(loops) : 0;
        for (Py_ssize_t one = 0; one < count; one++) {
            Loop *loop = (Loop *)PyList_GetItem(loops, one);
            PyObject *done = PyObject_CallMethodObjArgs(loop->loop, s_threadsafe, loop, NULL);
            if (!done) PyErr_Clear(); /* a closed loop has no tasks left that could wait */
            XDROP(done);
        }
        XDROP(loops);
        XDROP(queue);
    }
}

static void finish_all(Queue *queue, PyObject *groups, PyObject *error) {
    for (Py_ssize_t place = 0; place < PyList_Size(groups); place++)
        finish_group(queue, group_at(groups, place), error);
    begin_chain(queue);
    wake_loops(groups);
}

static PyObject *queue_finish(Queue *queue, PyObject *args) {
    double seconds;
    if (!PyArg_ParseTuple(args, "d", &seconds)) return NULL;
    PyObject *groups = PyList_GetSlice(queue->groups, 0, queue->unsynced);
    if (!groups || PyList_SetSlice(queue->groups, 0, queue->unsynced, NULL) < 0) {
        XDROP(groups);
        return NULL;
    }
    queue->unsynced = 0;
    seconds *= WAIT_FLUSHES;
    queue->wait_seconds = seconds < WAIT_SECONDS ? seconds : WAIT_SECONDS;
    finish_all(queue, groups, NULL);
    DROP(groups);
    Py_RETURN_NONE;
}

static PyObject *queue_refuse(Queue *queue, PyObject *args) {
    PyObject *group, *error, *groups;
    if (!PyArg_ParseTuple(args, "O!O", GroupType, &group, &error) ||
        !(groups = Py_BuildValue("[O]", group)))
        return NULL;
    PyObject *done = PyObject_CallMethod(queue->groups, "remove", "O", group);
    if (done) {
        queue->unsynced--;
        finish_all(queue, groups, error);
    }
    DROP(groups);
    return done;
}

static PyObject *queue_unfinished(Queue *queue, PyObject *Py_UNUSED(none)) {
    Py_ssize_t count = PyList_Size(queue->groups);
    return PyList_GetSlice(queue->groups, 0, count - !PyList_Size(current(queue)->items));
}

static PyObject *queue_stop(Queue *queue, PyObject *cause) {
    Group *fresh = new_group(queue);
    PyObject *empty = fresh ? Py_BuildValue("[N]", fresh) : NULL, *groups = queue->groups;
    if (!empty) return NULL;
    PyObject *first = queue->failed ? queue->stop : NULL;
    if (first || !queue->stop) queue->stop = Py_NewRef(cause);
    queue->failed = 0;
    XDROP(first);
    groups = queue->groups;
    queue->groups = empty;
    queue->unsynced = queue->dirty_bytes = 0;
    finish_all(queue, groups, queue->stop);
    DROP(groups);
    return Py_NewRef(queue->stop);
}

/* In a forked child: its other threads, and with them the waiters, do not exist. */
static PyObject *queue_forget_waiters(Queue *queue, PyObject *Py_UNUSED(none)) {
    memset(&queue->lockers, 0, sizeof(List));
    memset(&queue->chain, 0, sizeof(List));
    queue->owner = 0;
    queue->pending = 0;
    queue->watched = 0;
    for (Py_ssize_t place = 0; place < PyList_Size(queue->groups); place++) {
        Group *group = group_at(queue->groups, place);
        memset(&group->waiters, 0, sizeof(List));
        Py_CLEAR(group->loops);
    }
    Py_RETURN_NONE;
}

/* -- the type Queue ------------------------------------------------------------------------ */

static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named)) {
    PyObject *calls[6], *name;
    Py_ssize_t group_bytes, pending_bytes;
    if (!PyArg_ParseTuple(args, "OOOOOOUnn", &calls[0], &calls[1], &calls[2], &calls[3], &calls[4],
                          &calls[5], &name, &group_bytes, &pending_bytes))
        return NULL;
    Queue *queue = allocate(type, 9, 6);
    Group *first = NULL;
    if (!queue) return NULL;
    for (int one = 0; one < 6; one++) ((Object *)queue)->reference[one] = Py_NewRef(calls[one]);
    queue->name = Py_NewRef(name);
    queue->group_bytes = group_bytes;
    queue->pending_bytes = pending_bytes;
    queue->relay_next = RELAY_MIN;
    if ((first = new_group(queue))) queue->groups = Py_BuildValue("[N]", first);
    if (!queue->groups) Py_CLEAR(queue);
    return (PyObject *)queue;
}

static PyObject *queue_owned(Queue *queue, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(queue->owner == PyThread_get_thread_ident());
}

static PyObject *queue_refuse_if_stopped(Queue *queue, PyObject *Py_UNUSED(none)) {
    return queue->stop ? raise_copy(queue->stop) : Py_NewRef(Py_None);
}

#define METHOD(name, flags) {#name, (PyCFunction)(void (*)(void))queue_##name, flags, NULL}
static PyMethodDef queue_methods[] = {METHOD(submit, METH_FASTCALL),
                                      METHOD(commit, METH_FASTCALL),
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
static PyType_Spec queue_spec = {"tallystick_fast.Queue", sizeof(Queue), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, queue_slots};

/* -- the type Group ------------------------------------------------------------------------ */

static PyMemberDef group_members[] = {{"items", T_OBJECT, offsetof(Group, items), READONLY, NULL},
                                      {"error", T_OBJECT, offsetof(Group, error), READONLY, NULL},
                                      {"lsns", T_OBJECT, offsetof(Group, lsns), 0, NULL},
                                      {"bytes", T_PYSSIZET, offsetof(Group, bytes), READONLY, NULL},
                                      {"sync", T_BOOL, offsetof(Group, sync), READONLY, NULL},
                                      {NULL}};
static PyType_Slot group_slots[] = {COMMON, {Py_tp_members, group_members}, {0, NULL}};
static PyType_Spec group_spec = {
    "tallystick_fast.Group", sizeof(Group), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, group_slots};

/* -- the type Ticket ----------------------------------------------------------------------- */

/* The garbage collector takes the queue from the groups of a log that was never closed. */
static int has_queue(Group *group) {
    if (!group->queue) PyErr_SetString(PyExc_RuntimeError, "the log of this ticket is gone");
    return group->queue ? 0 : -1;
}

static PyObject *ticket_wait(Ticket *ticket, PyObject *args, PyObject *named) {
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = Py_None;
    Group *group = ticket->group;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|O", names, &timeout)) return NULL;
    if (!group->finished) {
        int64_t until = deadline_of(timeout);
        if (until < 0 || has_queue(group) < 0 || wait_for(group->queue, group, until) < 0)
            return NULL;
    }
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
    return PyObject_CallNoArgs(group->queue->request);
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
    {NULL}};
static PyType_Slot ticket_slots[] = {
    COMMON, {Py_tp_methods, ticket_methods}, {Py_am_await, ticket_await}, {0, NULL}};
static PyType_Spec ticket_spec = {
    "tallystick_fast.Ticket", sizeof(Ticket), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, ticket_slots};

/* -- the type Loop ------------------------------------------------------------------------- */

/* Run every task on, in the order in which they came to wait. */
static PyObject *loop_wake(Loop *loop, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(named)) {
    while (loop->place < PyList_Size(loop->tasks)) {
        Await *await = (Await *)PyList_GetItem(loop->tasks, loop->place++);
        PyObject *wake = await->wake;
        if (!wake) continue; /* cancelled */
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

static PyType_Slot loop_slots[] = {COMMON, {Py_tp_call, loop_wake}, {0, NULL}};
static PyType_Spec loop_spec = {
    "tallystick_fast.Loop", sizeof(Loop), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, loop_slots};

/* -- the type Await ------------------------------------------------------------------------ */

/* Return the tasks of this loop that wait for the group, by a borrowed reference; NULL without an
   exception if the group is finished. */
static Loop *loop_of(Group *group, PyObject *event_loop) {
    Py_ssize_t count = group->loops ? PyList_Size(group->loops) : 0;
    for (Py_ssize_t place = 0; place < count; place++) {
        Loop *loop = (Loop *)PyList_GetItem(group->loops, place);
        if (loop->loop == event_loop) return loop;
    }
    if (has_queue(group) < 0) return NULL;
    Loop *loop = allocate(LoopType, 2, 1);
    PyObject *loops = PyList_New(0);
    if (loop) {
        loop->loop = Py_NewRef(event_loop);
        loop->tasks = PyList_New(0);
    }
    if (loops && !group->loops && !group->finished) group->loops = Py_NewRef(loops);
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
static PyObject *await_step(Await *await, PyObject **result) {
    Group *group = await->group;
    *result = NULL;
    if (!group->finished) {
        if (!await->loop && !(await->loop = PyObject_CallNoArgs(get_running_loop))) return NULL;
        Loop *loop = loop_of(group, await->loop);
        if (loop) {
            await->blocking = 1;
            return PyList_Append(loop->tasks, (PyObject *)await) < 0 ? NULL
                                                                     : Py_NewRef((PyObject *)await);
        }
        if (PyErr_Occurred()) return NULL;
    }
    *result = outcome(group, await->index);
    return NULL;
}

static PySendResult await_send(Await *await, PyObject *Py_UNUSED(value), PyObject **result) {
    PyObject *future = await_step(await, result);
    if (future) {
        *result = future;
        return PYGEN_NEXT;
    }
    return *result ? PYGEN_RETURN : PYGEN_ERROR;
}

static PyObject *await_next(Await *await) {
    PyObject *result, *future = await_step(await, &result);
    if (result) {
        PyErr_SetObject(PyExc_StopIteration, result);
        DROP(result);
    }
    return future;
}

static PyObject *await_add_done_callback(Await *await, PyObject *const *args, Py_ssize_t count,
                                         PyObject *names) {
    if (!takes(count, 1)) return NULL;
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

static PyObject *await_cancel(Await *await, PyObject *args, PyObject *named) {
    static char *names[] = {"msg", NULL};
    PyObject *message = Py_None, *done, *call;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|O", names, &message)) return NULL;
    if (!await->wake) Py_RETURN_FALSE;
    PyObject *wake = await->wake;
    await->wake = NULL;
    await->cancelled = 1;
    XDROP(await->message);
    await->message = Py_NewRef(message);
    call = PyObject_GetAttr(await->loop, s_call_soon);
    PyObject *positional = PyTuple_Pack(2, wake, await);
    PyObject *keywords = PyDict_New();
    done =
        call && positional && keywords && PyDict_SetItem(keywords, s_context, await->context) == 0
            ? PyObject_Call(call, positional, keywords)
            : NULL;
    XDROP(keywords), XDROP(positional), XDROP(call), DROP(wake);
    XDROP(done);
    return done ? Py_NewRef(Py_True) : NULL;
}

/* The outcome of the group is the ticket's; this is only to raise in a cancelled task. */
static PyObject *await_result(Await *await, PyObject *Py_UNUSED(none)) {
    if (!await->cancelled) Py_RETURN_NONE;
    return raise_made(cancelled_error, await->message == Py_None ? NULL : await->message);
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
static PyType_Slot await_slots[] = {COMMON,
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

#define PLAIN_MAX 8192 /* bytes of a body; above, the library's checksum is the faster one */
#define HEADER 128     /* docs/formats/tally.md; tests compare every byte with the twin's */
#define SECTOR_MAX 4096
#define TAG 16 /* room that the twin leaves for an encryption's tag */
#define APPEND_COLUMNS 0x10000u

static uint32_t crc_table[8][256];

static void make_crc_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        crc_table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int row = 1; row < 8; row++)
            crc_table[row][byte] =
                crc_table[row - 1][byte] >> 8 ^ crc_table[0][crc_table[row - 1][byte] & 0xFF];
}

static uint32_t crc32(const unsigned char *data, size_t size) {
    uint32_t crc = ~0u;
    for (; size >= 8; size -= 8, data += 8) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
        low ^= crc;
        crc = crc_table[7][low & 0xFF] ^ crc_table[6][low >> 8 & 0xFF] ^
              crc_table[5][low >> 16 & 0xFF] ^ crc_table[4][low >> 24] ^ crc_table[3][high & 0xFF] ^
              crc_table[2][high >> 8 & 0xFF] ^ crc_table[1][high >> 16 & 0xFF] ^
              crc_table[0][high >> 24];
    }
    while (size--) crc = crc >> 8 ^ crc_table[0][(crc ^ *data++) & 0xFF];
    return ~crc;
}

enum {
    SEGMENT,
    END,
    NEXT_LSN,
    DURABLE_LSN,
    TIME,
    CHAIN,
    NUMBERS,
    FILE_ = NUMBERS,
    FD,
    INDEX,
    DIRTY,
    MARKED,
    PWRITE,
    DATASYNC,
    NAMES
};
static const char *const plain_names[NAMES] = {
    "segment", "end",   "next_lsn", "durable_lsn", "time_us", "chain",   "_file",
    "_fd",     "index", "_dirty",   "marked",      "pwrite",  "datasync"};
static PyObject *names_of[NAMES];

typedef struct {
    OBJECT PyObject *appender, *plain_lsns, *file_type, *pwrite, *datasync;
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

static long long up(long long size, long long sector) {
    return (size + sector - 1) / sector * sector;
}

static int set_number(PyObject *target, int name, long long value) {
    PyObject *number = PyLong_FromLongLong(value);
    int failed = number ? PyObject_SetAttr(target, names_of[name], number) : -1;
    XDROP(number);
    return failed;
}

/* True if the type still has this function: someone may have put another one in its place. */
static int has(PyObject *type, int name, PyObject *function) {
    PyObject *found = PyObject_GetAttr(type, names_of[name]);
    XDROP(found);
    return found == function;
}

/* Return the descriptor of the file, or -1: only a real file, never one of another class. */
static int plain_descriptor(Plain *plain) {
    if (!has(plain->file_type, PWRITE, plain->pwrite) ||
        !has(plain->file_type, DATASYNC, plain->datasync))
        return -1;
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
static int write_and_sync(int fd, const char *data, long long size, long long offset,
                          int *written) {
    for (long long done = 0; done < size;) {
        ssize_t some = pwrite(fd, data + done, (size_t)(size - done), offset + done);
        if (some < 0 && errno != EINTR) return errno;
        done += some > 0 ? some : 0;
    }
    *written = 1;
    while (fdatasync(fd) < 0)
        if (errno != EINTR) return errno;
    return 0;
}

static int plain_note(Plain *plain, const long long *at, const Header *header, int failed) {
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
static PyObject *plain_call(Plain *plain, PyObject *args, PyObject *Py_UNUSED(named)) {
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
    if (PyErr_Occurred()) return NULL;
    if (fd < 0 || at[END] + up(stored + TAG + 2 * HEADER, plain->sector) +
                          up(entries + 2 * HEADER, plain->sector) >
                      plain->segment_size)
        Py_RETURN_NONE;
    char data[PLAIN_MAX + 2 * HEADER + 8 + SECTOR_MAX];
    long long length = up(stored + 2 * HEADER, plain->sector), time_us;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time_us = (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    int32_t offsets[2] = {0, (int32_t)size};
    memcpy(data + HEADER, offsets, 8);
    memcpy(data + HEADER + 8, PyBytes_AsString(body), (size_t)size);
    memset(data + HEADER + stored, 0, (size_t)(length - stored - HEADER));
    Header header = {.magic = "\x89TLYG\r\n\x1a",
                     .version = 1,
                     .length = (uint32_t)length,
                     .segment = (uint64_t)at[SEGMENT],
                     .offset = (uint64_t)at[END],
                     .first_lsn = (uint64_t)at[NEXT_LSN],
                     .count = 1,
                     .columns = APPEND_COLUMNS,
                     .stored = (uint32_t)stored,
                     .raw = (uint32_t)stored,
                     .time_us = time_us > at[TIME] ? time_us : at[TIME],
                     .durable_lsn = (uint64_t)at[DURABLE_LSN],
                     .chain = (uint32_t)at[CHAIN],
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
    if (written && plain_note(plain, at, &header, error)) return NULL;
    if (error) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromLongLong(at[NEXT_LSN]);
}

static PyObject *plain_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named)) {
    Plain given = {0}, *plain;
    const char *tag;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "OO!OOOLLLIy#", &given.appender, &PyDict_Type, &given.plain_lsns,
                          &given.file_type, &given.pwrite, &given.datasync, &given.sector,
                          &given.segment_size, &given.entry, &given.shard, &tag, &size))
        return NULL;
    if (given.sector < 512 || given.sector > SECTOR_MAX || size != 8)
        return PyErr_Format(PyExc_ValueError, "a sector of 512 to %d bytes and a tag of 8 are due",
                            SECTOR_MAX);
    if (!(plain = allocate(type, 5, 0))) return NULL;
    for (int one = 0; one < 5; one++)
        ((Object *)plain)->reference[one] = Py_NewRef(((Object *)&given)->reference[one]);
    plain->sector = given.sector;
    plain->segment_size = given.segment_size;
    plain->entry = given.entry;
    plain->shard = given.shard;
    memcpy(plain->tag, tag, 8);
    return (PyObject *)plain;
}

static PyType_Slot plain_slots[] = {
    {Py_tp_new, plain_new}, COMMON, {Py_tp_call, plain_call}, {0, NULL}};
static PyType_Spec plain_spec = {"tallystick_fast.Plain", sizeof(Plain), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, plain_slots};

/* -- the module ---------------------------------------------------------------------------- */

static PyObject *attribute(const char *module, const char *name) {
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *found = imported ? PyObject_GetAttrString(imported, name) : NULL;
    XDROP(imported);
    return found;
}

/* Set the two functions of the main package that make the errors of callers. */
static PyObject *set_errors(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *copy, *usage;
    if (!PyArg_ParseTuple(args, "OO", &copy, &usage)) return NULL;
    XDROP(copy_error), XDROP(usage_error);
    copy_error = Py_NewRef(copy);
    usage_error = Py_NewRef(usage);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"set_errors", set_errors, METH_VARARGS, NULL}, {NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                        "tallystick_fast",
                                        "The compiled core of Tallystick.",
                                        -1,
                                        functions,
                                        NULL,
                                        NULL,
                                        NULL,
                                        NULL};

PyMODINIT_FUNC PyInit_tallystick_fast(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
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
