/* The block in which no signal handler runs, as tallystick/storage/signals.py has it.

   The rules stand there. Here no bytecode runs between two statements: what can raise anything are
   calls of `signal.signal`, which run the handlers that are due first, and of handlers. There is
   one block for the whole process, as there is one set of handlers; the interpreter lock guards it.

   The functions of `_signal` are called by their addresses: a look at all handlers takes a fifth
   of a microsecond then, and so nothing has to be known about who changes them. */

#include "core.h"

#define NUMBERS 65       /* of signals, from 1 on */
#define FAILURES_MAX 100 /* of one call, by handlers that raise: a signal may arrive with each */

typedef PyObject *(*Fast)(PyObject *module, PyObject *const *args, Py_ssize_t count);

static PyObject *module;  /* _signal */
static PyCFunction get;   /* its getsignal */
static Fast set;          /* its signal */
static PyObject *catcher; /* stands in for the handlers that the block has replaced */
static PyObject *default_action, *ignore;
static PyObject *number[NUMBERS];  /* NULL if there is no such signal */
static PyObject *handler[NUMBERS]; /* the last one of each that was replaced, or NULL */
static uint64_t replaced, caught;  /* sets of signals, bit N - 1 for signal N */
static PyObject *raised; /* by handlers as the block was entered or left: the last one */
static unsigned long main_thread;
static int depth;   /* of blocks that are open; 0 also while signals are let through */
static int letting; /* calls, one in the other, that let signals through */

#define ROOM 200 /* calls, one in the other, that a block can make in any case */

static PyObject *getframe; /* sys._getframe */
static int limit;          /* on recursion, as it was before room was made */
static int rooms;          /* threads for which the limit is raised now */

/* With each thread's own stack, where the C library has that for a module that is loaded later: the
   rest it frees in another thread, of which the sanitizer for races knows nothing. */
#ifdef __GLIBC__
#define OF_THREAD __attribute__((tls_model("initial-exec")))
#else
#define OF_THREAD
#endif
static _Thread_local int open_here OF_THREAD, room_here OF_THREAD; /* blocks; is room made? */

static int in_main(void) { return PyThread_get_thread_ident() == main_thread; }

static uint64_t bit(int one) { return (uint64_t)1 << (one - 1); }

/* Take the exception that is set, to raise it later. */
static void keep_raised(void) {
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyErr_NormalizeException(&kind, &error, &trace);
    if (trace) PyException_SetTraceback(error, trace);
    Py_XDECREF(kind), Py_XDECREF(trace);
    if (raised && raised != error)
        PyException_SetContext(error, raised); /* takes the reference */
    else
        Py_XDECREF(raised);
    raised = error;
}

/* Replace a handler; what handlers raise that are due is kept. NULL if that goes on and on. */
static PyObject *exchange(int one, PyObject *by) {
    PyObject *const args[] = {number[one], by};
    PyObject *before = NULL;
    for (int failures = 0; failures < FAILURES_MAX && !before; failures++)
        if (!(before = set(module, args, 2))) keep_raised();
    return before;
}

/* Replace every handler that was written in Python. */
static void install(void) {
    depth = 1; /* first: from the first exchange on signals are caught */
    for (int one = 1; one < NUMBERS; one++) {
        PyObject *now = number[one] ? get(module, number[one]) : Py_NewRef(Py_None);
        int is_function = now && now != default_action && now != ignore && PyCallable_Check(now);
        Py_XDECREF(now);
        if (!is_function || !(now = exchange(one, catcher))) continue;
        replaced |= bit(one);
        if (now == catcher) { /* someone has put it back later: it stands for what it stood for */
            Py_DECREF(now);
            continue;
        }
        PyObject *before = handler[one];
        handler[one] = now;
        Py_XDECREF(before);
    }
}

/* Put the handlers back, and those that were installed during the block in their place. */
static void restore(void) {
    for (int one = 1; one < NUMBERS; one++) {
        PyObject *now = replaced & bit(one) ? exchange(one, handler[one]) : NULL;
        if (now && now != catcher && now != handler[one]) Py_XDECREF(exchange(one, now));
        Py_XDECREF(now);
    }
    replaced = 0;
    depth = 0;
}

static PyObject *call_handler(int one) {
    PyObject *frame = (PyObject *)PyEval_GetFrame(), *now = Py_XNewRef(handler[one]);
    PyObject *done =
        now ? PyObject_CallFunctionObjArgs(now, number[one], frame ? frame : Py_None, NULL)
            : Py_NewRef(Py_None);
    Py_XDECREF(now);
    return done;
}

/* Run the handlers whose signals were caught; -1 with an exception if one of them, or one before,
   has raised one. */
static int deliver(void) {
    while (caught) {
        int one = 1 + __builtin_ctzll(caught);
        caught &= ~bit(one);
        PyObject *done = call_handler(one);
        if (!done) keep_raised();
        Py_XDECREF(done);
    }
    PyObject *error = raised;
    raised = NULL;
    if (!error) return 0;
    PyObject *kind = Py_NewRef((PyObject *)Py_TYPE(error));
    PyErr_Restore(kind, error, PyException_GetTraceback(error));
    return -1;
}

/* The handler in place of others: their signals are caught, or let through. */
static PyObject *caught_signal(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count) {
    long one = count == 2 ? PyLong_AsLong(args[0]) : 0;
    if (PyErr_Occurred()) return NULL;
    if (one < 1 || one >= NUMBERS) return PyErr_BadArgument(), NULL;
    if (!depth) return call_handler((int)one);
    caught |= bit((int)one);
    Py_RETURN_NONE;
}

static PyMethodDef catcher_method = {"catch", (PyCFunction)(void (*)(void))caught_signal,
                                     METH_FASTCALL, NULL};

/* -- room for the calls of a block ----------------------------------------------------------- */

/* Are there more frames than so many? Calls of C functions, which may count, are not known. */
static int is_deeper(int frames) {
    PyObject *count = PyLong_FromLong(frames);
    PyObject *frame = count ? PyObject_CallFunctionObjArgs(getframe, count, NULL) : NULL;
    int deeper = frame || !PyErr_ExceptionMatches(PyExc_ValueError);
    Py_XDECREF(count), Py_XDECREF(frame);
    PyErr_Clear();
    return deeper;
}

static void make_room(void) {
    if (open_here++ || room_here || !is_deeper(Py_GetRecursionLimit() / 2)) return;
    room_here = 1;
    if (rooms++) return;
    limit = Py_GetRecursionLimit();
    Py_SetRecursionLimit(limit + ROOM);
}

static void end_room(void) {
    if (!rooms || --rooms) return;
    if (Py_GetRecursionLimit() == limit + ROOM) Py_SetRecursionLimit(limit);
}

static void leave_room(void) {
    if (--open_here || !room_here) return;
    room_here = 0;
    end_room();
}

/* Call what belongs to the application: no room was made for that, and it may open blocks. */
static PyObject *call_of_application(PyObject *call) {
    int blocks = open_here, room = room_here;
    if (room && is_deeper(limit)) {
        PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
        return NULL;
    }
    open_here = room_here = 0;
    PyObject *done = PyObject_CallObject(call, NULL);
    open_here = blocks, room_here = room;
    return done;
}

/* -- the block ----------------------------------------------------------------------------- */

static void enter(void) {
    if (depth || letting)
        depth++;
    else
        install();
}

static int leave(void) {
    if (depth > 1 || (depth && letting)) {
        depth--;
        return depth || !caught ? 0 : deliver();
    }
    if (depth) restore();
    return caught || raised ? deliver() : 0;
}

/* Others run no handlers, and have limits of their own on recursion. */
static int in_first_interpreter(void) {
    return PyInterpreterState_GetID(PyInterpreterState_Get()) == 0;
}

static PyObject *block_enter(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none)) {
    if (in_first_interpreter()) {
        make_room();
        if (in_main()) enter();
    }
    Py_RETURN_NONE;
}

static PyObject *block_exit(PyObject *Py_UNUSED(self), PyObject *const *Py_UNUSED(args),
                            Py_ssize_t Py_UNUSED(count)) {
    if (in_first_interpreter()) {
        leave_room();
        if (in_main() && depth && leave() < 0) return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *call_through(PyObject *call, PyObject *args) {
    PyObject *done = NULL;
    depth = 0;
    letting++;
    if (PyErr_CheckSignals() == 0 && deliver() == 0) done = PyObject_CallObject(call, args);
    letting--;
    depth = 1;
    return done;
}

static PyObject *block_interruptible(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *call = PyTuple_GetItem(args, 0);
    PyObject *rest = call ? PyTuple_GetSlice(args, 1, PyTuple_Size(args)) : NULL, *done;
    if (!rest) return NULL;
    done = in_main() && depth == 1 ? call_through(call, rest) : PyObject_CallObject(call, rest);
    Py_DECREF(rest);
    return done;
}

static PyObject *block_outside(PyObject *Py_UNUSED(self), PyObject *call) {
    PyObject *done = NULL;
    if (!in_main() || depth != 1 || letting || caught || raised) return call_of_application(call);
    if (leave() == 0) done = call_of_application(call);
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    enter();
    PyErr_Restore(kind, error, trace);
    return done;
}

static PyObject *block_after_fork(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none)) {
    if (!in_main()) {
        main_thread = PyThread_get_thread_ident();
        caught = 0;
        letting = 0;
        restore();
        Py_CLEAR(raised);
    }
    if (rooms) { /* of threads that are not here */
        rooms = 1 + room_here;
        end_room();
    }
    Py_RETURN_NONE;
}

static PyObject *block_handlers(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none)) {
    PyObject *list = PyList_New(0);
    for (int one = 1; list && one < NUMBERS; one++)
        if (replaced & bit(one) && PyList_Append(list, handler[one]) < 0) Py_CLEAR(list);
    return list;
}

static PyMethodDef methods[] = {
    {"__enter__", block_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))block_exit, METH_FASTCALL, NULL},
    {"interruptible", block_interruptible, METH_VARARGS, NULL},
    {"outside", block_outside, METH_O, NULL},
    {"after_fork", block_after_fork, METH_NOARGS, NULL},
    {"handlers", block_handlers, METH_NOARGS, NULL},
    {NULL}};
static PyType_Slot slots[] = {{Py_tp_methods, methods}, {0, NULL}};
static PyType_Spec spec = {"tallystick_fast.Uninterrupted", sizeof(PyObject), 0,
                           Py_TPFLAGS_DEFAULT, slots};

/* -- what is added to the module ----------------------------------------------------------- */

static PyObject *function_of(const char *name, int flags) {
    PyObject *found = PyObject_GetAttrString(module, name);
    if (found && (!PyCFunction_Check(found) || PyCFunction_GetFlags(found) != flags))
        Py_CLEAR(found);
    return found; /* never given back: its address is used */
}

static int find_main_thread(void) {
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    if (ident) main_thread = PyLong_AsUnsignedLong(ident);
    Py_XDECREF(ident), Py_XDECREF(thread), Py_XDECREF(threading);
    return PyErr_Occurred() ? -1 : 0;
}

static int find_signals(void) {
    PyObject *one, *valid = PyObject_CallMethod(module, "valid_signals", NULL);
    PyObject *every = valid ? PyObject_GetIter(valid) : NULL;
    while (every && (one = PyIter_Next(every))) {
        long found = PyLong_AsLong(one);
        if (found > 0 && found < NUMBERS) number[found] = PyLong_FromLong(found);
        Py_DECREF(one);
    }
    Py_XDECREF(every), Py_XDECREF(valid);
    return PyErr_Occurred() ? -1 : 0;
}

/* Return the block; NULL, without an exception, where this interpreter has other functions. */
static PyObject *new_uninterrupted(void) {
    if (!(module = PyImport_ImportModule("_signal"))) return NULL;
    PyObject *getsignal = function_of("getsignal", METH_O);
    PyObject *signal = function_of("signal", METH_FASTCALL);
    getframe = Py_XNewRef(PySys_GetObject("_getframe"));
    if (!getsignal || !signal || !getframe) return NULL;
    get = PyCFunction_GetFunction(getsignal);
    set = (Fast)(void (*)(void))PyCFunction_GetFunction(signal);
    default_action = PyObject_GetAttrString(module, "SIG_DFL");
    ignore = PyObject_GetAttrString(module, "SIG_IGN");
    catcher = PyCFunction_New(&catcher_method, NULL);
    if (!default_action || !ignore || !catcher || find_main_thread() < 0 || find_signals() < 0)
        return NULL;
    PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(&spec);
    PyObject *block = type ? PyType_GenericAlloc(type, 0) : NULL;
    Py_XDECREF((PyObject *)type);
    return block;
}

int add_signals(PyObject *added_to) {
    PyObject *block = new_uninterrupted();
    int failed = PyErr_Occurred() || (block && PyModule_AddObjectRef(added_to, "uninterrupted", block));
    Py_XDECREF(block);
    return failed ? -1 : 0;
}
