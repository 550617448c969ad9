/* Objects of the compiled core: they own references, and refuse to be copied. */

#include "core.h"

typedef struct {
    OBJECT PyObject *reference[];
} Object;

static PyObject *refuse_copy;

void *allocate(PyTypeObject *type, short references, short cleared) {
    Object *self = (Object *)PyType_GenericAlloc(type, 0);
    if (self) {
        self->references = references;
        self->cleared = cleared;
    }
    return self;
}

int object_traverse(PyObject *object, visitproc visit, void *arg) {
    Object *self = (Object *)object;
    Py_VISIT(Py_TYPE(object));
    for (int one = 0; one < self->references; one++) Py_VISIT(self->reference[one]);
    return 0;
}

/* The rest stays: a method that a finalizer calls finds an object that is whole. */
int object_clear(PyObject *object) {
    Object *self = (Object *)object;
    for (int one = 0; one < self->cleared; one++) Py_CLEAR(self->reference[one]);
    return 0;
}

void object_dealloc(PyObject *object) {
    Object *self = (Object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    for (int one = 0; one < self->references; one++) Py_CLEAR(self->reference[one]);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    DROP(type);
}

/* Raise the error for whoever copies or pickles it. */
PyObject *object_reduce(PyObject *self, PyObject *Py_UNUSED(none)) {
    return PyObject_CallFunctionObjArgs(refuse_copy, self, NULL);
}

PyObject *raise_made(PyObject *error) {
    if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    XDROP(error);
    return NULL;
}

PyObject *attribute(const char *module, const char *name) {
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *found = imported ? PyObject_GetAttrString(imported, name) : NULL;
    XDROP(imported);
    return found;
}

int add_objects(void) {
    refuse_copy = attribute("tallystick.storage.fork", "refuse_copy");
    return refuse_copy ? 0 : -1;
}
