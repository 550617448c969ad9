/* The end of a native log, to which a queue writes the items of its lone callers.

   For a body no Python runs then, and no object is made but the record's number; for another item the
   log has a function that returns the columns and bytes of its group. Whatever is not plain (encryption,
   a segment without room, a file whose functions were replaced) is left to Python. */

#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/sysmacros.h>
#endif
#include <unistd.h>

PyTypeObject *LogEndType;

struct LogEnd { /* where the next group goes */
    OBJECT PyObject *file_type, *pwrite, *datasync, *crc32, *header, *index, *plain_lsns, *encoders;
    Py_ssize_t sector, room;
    unsigned long long segment, end, next_lsn, durable_lsn;
    unsigned long long device, inode; /* of the file that is written to */
    long long time_us;
    unsigned chain;
    int fd, error; /* -1: only Python may write; errno of what failed */
    char dirty, marked;
};

#define LARGEST 65536 /* bytes of a payload: the interpreter lock is held while it is copied */
#define PLAIN (1 << 16) /* columns of a group of plain records */
typedef struct __attribute__((packed)) { /* docs/formats/tally.md; a test compares every byte */
    char fixed[12];                      /* magic, version, flags */
    uint32_t length;
    uint64_t segment, offset, first_lsn;
    uint32_t count, columns, stored, raw;
    int64_t time_us;
    uint64_t durable_lsn;
    uint32_t crc, chain;
    char also_fixed[44]; /* nonce, shard, tag, zeros */
    uint32_t checksum;
} Header;
_Static_assert(sizeof(Header) == 128, "the header of a group has 128 bytes");
typedef struct { /* of the index of a segment, as long as that is written to */
    int64_t offset, lsn, time_us;
} Entry;

static uint32_t checksum(PyObject *crc32, char *data, size_t size) {
    PyObject *number = PyObject_CallFunction(crc32, "y#", data, (Py_ssize_t)size);
    uint32_t crc = number ? (uint32_t)PyLong_AsUnsignedLong(number) : 0;
    XDROP(number);
    return crc;
}

/* Return 0 if a descriptor leads to the file that it was opened for, which has a name still; else
   an errno. Other code of the process may have closed it by its number, which another file has got
   then. Times are not asked for: where a kernel tells them finely, the next write would have to
   write them down, and a commit takes half as long again. */
static int is_in_place(LogEnd *at) {
#ifdef STATX_NLINK
    struct statx some;
    unsigned asked = STATX_TYPE | STATX_NLINK | STATX_INO | STATX_SIZE;
    if (statx(at->fd, "", AT_EMPTY_PATH, asked, &some) == 0 && (some.stx_mask & asked) == asked) {
        int same = some.stx_ino == at->inode &&
                   makedev(some.stx_dev_major, some.stx_dev_minor) == at->device;
        int cut = S_ISREG(some.stx_mode) && some.stx_size < at->end;
        return !same ? EBADF : !some.stx_nlink ? ENOENT : cut ? ENODATA : 0;
    }
#endif
    struct stat now;
    if (fstat(at->fd, &now) < 0) return errno;
    if (now.st_ino != at->inode || (unsigned long long)now.st_dev != at->device) return EBADF;
    int cut = S_ISREG(now.st_mode) && (uint64_t)now.st_size < at->end;
    return !now.st_nlink ? ENOENT : cut ? ENODATA : 0;
}

/* Return 0, or an errno. No room for a write is no error of the log, unlike that of a sync: what was
   written is overwritten by the next group. */
static int write_and_sync(LogEnd *at, const char *data, size_t size, int *no_room) {
    int fd = at->fd, wrong = is_in_place(at); /* as `LocalFile.fd` and its `datasync` */
    uint64_t offset = at->end;
    if (wrong) return wrong;
    for (size_t done = 0; done < size;) {
        ssize_t some = pwrite(fd, data + done, size - done, (off_t)(offset + done));
        if (some < 0 && errno != EINTR) {
            *no_room = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
            return *no_room ? 0 : errno;
        }
        if (!some) return EIO; /* as the twin: else it might go on for ever */
        done += some > 0 ? (size_t)some : 0;
    }
    while (fdatasync(fd) < 0)
        if (errno != EINTR) return errno;
    return 0;
}

/* True, with an exception, if a write or sync has failed. */
static int failed(LogEnd *at) {
    if ((errno = at->error) == ENOENT)
        PyErr_SetString(PyExc_FileNotFoundError, "the file was deleted while it was open");
    else if (errno == EBADF)
        PyErr_SetString(PyExc_OSError,
                        "other code of this process has closed the file by its descriptor");
    else if (errno == ENODATA)
        PyErr_SetString(PyExc_OSError, "another program has cut the file");
    else if (errno)
        PyErr_SetFromErrno(PyExc_OSError);
    return at->error != 0;
}

/* The file is written by Python if that has another function for it than it had. */
static int may_write(LogEnd *at, Py_ssize_t size) {
    int same = at->fd >= 0 && !at->dirty && size <= LARGEST && !failed(at);
    for (int one = 0; one < 2 && same; one++) {
        PyObject *now = PyObject_GetAttr(at->file_type, word[N_pwrite + one]);
        same = now == (one ? at->datasync : at->pwrite);
        XDROP(now);
    }
    return same && !PyErr_Occurred();
}

/* Write and sync a group; return 0, 1 if there is no room for it: nothing has changed, or -1 with
   an exception: then the log is not used again. */
static int write_group(LogEnd *at, uint32_t count, uint32_t columns, const char *first,
                       Py_ssize_t first_size, const char *rest, Py_ssize_t rest_size) {
    char *data;
    Header header;
    size_t stored = (size_t)(first_size + rest_size), own = sizeof header;
    size_t sector = (size_t)at->sector, length = (stored + 2 * own + sector - 1) / sector * sector;
    int no_room = 0;
    Py_ssize_t entries = PyByteArray_Size(at->index);
    if (!(data = PyMem_Malloc(length))) return PyErr_NoMemory(), -1;
    if (PyByteArray_Resize(at->index, entries + (Py_ssize_t)sizeof(Entry)) < 0)
        return PyMem_Free(data), -1;
    long long now_us = now_ns(CLOCK_REALTIME) / 1000;
    if (now_us > at->time_us) at->time_us = now_us;
    Entry entry = {(int64_t)at->end, (int64_t)at->next_lsn, at->time_us};
    /* Now: whoever runs during the write may change the index. */
    memcpy(PyByteArray_AsString(at->index) + entries, &entry, sizeof entry);
    memcpy(data + own, first, (size_t)first_size);
    memcpy(data + own + first_size, rest, (size_t)rest_size);
    memset(data + own + stored, 0, length - own - stored);
    memcpy(&header, PyBytes_AsString(at->header), own);
    header.length = (uint32_t)length;
    header.segment = at->segment, header.offset = at->end;
    header.first_lsn = at->next_lsn, header.count = count, header.columns = columns;
    header.stored = header.raw = (uint32_t)stored;
    header.time_us = at->time_us;
    header.durable_lsn = at->durable_lsn, header.chain = at->chain;
    header.crc = checksum(at->crc32, data + own, length - 2 * own);
    header.checksum = checksum(at->crc32, (char *)&header, offsetof(Header, checksum));
    memcpy(data, &header, own);
    memcpy(data + length - own, &header, own);
    if (!PyErr_Occurred()) {
        PyThreadState *state = PyEval_SaveThread();
        at->error = write_and_sync(at, data, length, &no_room);
        PyEval_RestoreThread(state);
    }
    PyMem_Free(data);
    if (failed(at) || PyErr_Occurred()) return PyByteArray_Resize(at->index, entries), -1;
    if (no_room) return PyByteArray_Resize(at->index, entries) < 0 ? -1 : 1;
    at->chain = header.checksum;
    at->end += length, at->next_lsn += count, at->durable_lsn = at->next_lsn - 1;
    at->marked = 0;
    return 0;
}

static int has_room(LogEnd *at, Py_ssize_t size) {
    return (Py_ssize_t)at->end + size + PyByteArray_Size(at->index) <= at->room;
}

PyObject *write_plain(LogEnd *at, PyObject *body) {
    int32_t offsets[2] = {0, 0};
    if (!PyBytes_CheckExact(body)) return NULL;
    Py_ssize_t size = PyBytes_Size(body);
    if (!may_write(at, size) || !has_room(at, size)) return NULL;
    offsets[1] = (int32_t)size;
    PyObject *lsn = PyLong_FromUnsignedLongLong(at->next_lsn);
    PyObject *segment = PyLong_FromUnsignedLongLong(at->segment);
    if (!lsn || !segment || !at->plain_lsns || PyObject_SetItem(at->plain_lsns, segment, lsn) ||
        write_group(at, 1, PLAIN, (char *)offsets, sizeof offsets, PyBytes_AsString(body), size))
        Py_CLEAR(lsn);
    XDROP(segment);
    return lsn;
}

PyObject *write_encoded(LogEnd *at, PyObject *item, Py_ssize_t size) {
    const char *first, *rest;
    Py_ssize_t first_size, rest_size;
    unsigned count, columns;
    PyObject *type = (PyObject *)Py_TYPE(item), *made = NULL, *lsn = NULL;
    PyObject *encoder = at->encoders ? PyDict_GetItemWithError(at->encoders, type) : NULL;
    if (encoder && may_write(at, size) && has_room(at, size))
        made = PyObject_CallFunctionObjArgs(encoder, item, NULL);
    /* The number first: once the group is written nothing may fail, or it is written again. */
    if (made && made != Py_None &&
        PyArg_ParseTuple(made, "IIy#y#", &count, &columns, &first, &first_size, &rest,
                         &rest_size) &&
        (lsn = PyLong_FromUnsignedLongLong(at->next_lsn + count - 1)) &&
        write_group(at, count, columns, first, first_size, rest, rest_size))
        Py_CLEAR(lsn);
    XDROP(made);
    return lsn;
}

static PyObject *end_write_plain(LogEnd *at, PyObject *body) {
    PyObject *lsn = write_plain(at, body);
    return lsn || PyErr_Occurred() ? lsn : Py_NewRef(Py_None);
}

/* True, or False if Python has to write the group. */
static PyObject *end_write(LogEnd *at, PyObject *args) {
    const char *first, *rest;
    Py_ssize_t first_size, rest_size;
    unsigned count, columns;
    if (!PyArg_ParseTuple(args, "IIy#y#", &count, &columns, &first, &first_size, &rest, &rest_size))
        return NULL;
    int written = rest_size <= LARGEST && may_write(at, first_size + rest_size) &&
                  write_group(at, count, columns, first, first_size, rest, rest_size) == 0;
    return PyErr_Occurred() ? NULL : PyBool_FromLong(written);
}

static PyObject *end_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named)) {
    PyObject *header, *crc32, *file_type, *pwrite, *datasync;
    Py_ssize_t sector, room;
    if (!PyArg_ParseTuple(args, "SnnOOOO", &header, &sector, &room, &crc32, &file_type, &pwrite,
                          &datasync))
        return NULL;
    if (PyBytes_Size(header) != sizeof(Header) || sector < 512 || sector > LARGEST)
        return PyErr_BadArgument(), NULL;
    LogEnd *at = allocate(type, 8, 0);
    if (!at) return NULL;
    at->header = Py_NewRef(header), at->crc32 = Py_NewRef(crc32);
    at->file_type = Py_NewRef(file_type);
    at->pwrite = Py_NewRef(pwrite), at->datasync = Py_NewRef(datasync);
    at->sector = sector, at->room = room;
    at->next_lsn = 1, at->fd = -1, at->marked = 1;
    if (!(at->index = PyByteArray_FromStringAndSize(NULL, 0))) Py_CLEAR(at);
    return (PyObject *)at;
}

static PyMethodDef end_methods[] = {{"write_plain", (PyCFunction)end_write_plain, METH_O, NULL},
                                    {"write", (PyCFunction)end_write, METH_VARARGS, NULL},
                                    UNCOPIED,
                                    {NULL}};
/* clang-format off */
#define END_MEMBERS(X) \
    X(index, T_OBJECT, READONLY) X(plain_lsns, T_OBJECT, 0) X(encoders, T_OBJECT, 0) \
    X(segment, T_ULONGLONG, 0) \
    X(end, T_ULONGLONG, 0) X(next_lsn, T_ULONGLONG, 0) X(durable_lsn, T_ULONGLONG, 0) \
    X(device, T_ULONGLONG, 0) X(inode, T_ULONGLONG, 0) \
    X(time_us, T_LONGLONG, 0) X(chain, T_UINT, 0) X(fd, T_INT, 0) X(dirty, T_BOOL, 0) X(marked, T_BOOL, 0)
/* clang-format on */
#define END_MEMBER(name, type, flags) {#name, type, offsetof(LogEnd, name), flags, NULL},
static PyMemberDef end_members[] = {END_MEMBERS(END_MEMBER){NULL}};
static PyType_Slot end_slots[] = {{Py_tp_new, end_new}, COMMON,
                                  {Py_tp_methods, end_methods},
                                  {Py_tp_members, end_members}, {0, NULL}};
static PyType_Spec end_spec = SPEC(LogEnd, end_slots, 0);

int add_log_end(PyObject *module) {
    LogEndType = (PyTypeObject *)PyType_FromSpec(&end_spec);
    return PyModule_AddObjectRef(module, "LogEnd", (PyObject *)LogEndType);
}
