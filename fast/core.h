/* What the files of the compiled core share: objects that own references, names of Python's, and
   what each file adds to the module. */

#ifndef TALLYSTICK_CORE_H
#define TALLYSTICK_CORE_H

#if !defined(__linux__)
#error "The compiled core needs Linux. Install tallystick without it: the same is done in Python."
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "The compiled core writes a little-endian log in the order of the machine; this one has another."
#endif

#define _GNU_SOURCE /* statx, sched_getaffinity */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdint.h>
#include <time.h>

#pragma GCC visibility push(hidden)

#define KEEP(object) Py_INCREF((PyObject *)(object))
#define DROP(object) Py_DECREF((PyObject *)(object))
#define XDROP(object) Py_XDECREF((PyObject *)(object))

/* Every object begins with its references; the garbage collector clears the first ones of them. */
#define OBJECT PyObject_HEAD short references, cleared;

void *allocate(PyTypeObject *type, short references, short cleared);
int object_traverse(PyObject *self, visitproc visit, void *arg);
int object_clear(PyObject *self);
void object_dealloc(PyObject *self);
PyObject *object_reduce(PyObject *self, PyObject *none);

#define COMMON                                                                                     \
    {Py_tp_dealloc, object_dealloc}, {Py_tp_traverse, object_traverse}, {                          \
        Py_tp_clear, object_clear                                                                  \
    }
#define UNCOPIED                                                                                   \
    {"__reduce__", object_reduce, METH_NOARGS, NULL}, {                                            \
        "__getstate__", object_reduce, METH_NOARGS, NULL                                           \
    }
#define SPEC(name, slots, flags)                                                                   \
    {"tallystick_fast." #name, sizeof(name), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | (flags), \
     slots}

/* clang-format off */
#define NAMES(X)                                                                                   \
    X(call_soon) X(call_soon_threadsafe) X(run) X(lead) X(commit_alone)                            \
    X(request_flush) X(write_dirty) X(too_large) X(late_error) X(own_flush_error) X(ended_error)   \
    X(release) X(pwrite) X(datasync)
/* clang-format on */
#define AS_NUMBER(name) N_##name,
enum { NAMES(AS_NUMBER) NAMES_COUNT };
extern PyObject *word[NAMES_COUNT]; /* names of attributes, by these numbers */

/* Return an attribute of a module, or NULL with an exception. */
PyObject *attribute(const char *module, const char *name);

/* Raise an error that was made for it, if it was; return NULL. */
PyObject *raise_made(PyObject *error);

static inline int64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The end of a native log: log_end.c. */
typedef struct LogEnd LogEnd;
extern PyTypeObject *LogEndType;

/* Write and sync a group of one plain record; return its LSN, or NULL, without an exception if
   Python has to write it. */
PyObject *write_plain(LogEnd *at, PyObject *body);

/* Write and sync the group that an encoder makes of an item of this size; the same. */
PyObject *write_encoded(LogEnd *at, PyObject *item, Py_ssize_t size);

/* What a file adds to the module; -1 with an exception. */
int add_objects(void);
int add_log_end(PyObject *module);
int add_queue(PyObject *module);
int add_signals(PyObject *module);

#pragma GCC visibility pop
#endif
