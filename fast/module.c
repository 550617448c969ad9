/* The module of the compiled core: queue.c, log_end.c and signals.c say what is in it. */

#include "core.h"

#define INTERFACE 9 /* the main package refuses another number */

#define AS_TEXT(name) #name,
static const char *const texts[] = {NAMES(AS_TEXT)};
PyObject *word[NAMES_COUNT];

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "tallystick_fast",
                                        .m_doc = "The compiled core of Tallystick.",
                                        .m_size = -1};

PyMODINIT_FUNC PyInit_tallystick_fast(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    for (int one = 0; one < NAMES_COUNT; one++) word[one] = PyUnicode_InternFromString(texts[one]);
    if (PyErr_Occurred() || add_objects() < 0 || add_log_end(module) < 0 || add_queue(module) < 0 ||
        add_signals(module) < 0 || PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0)
        Py_CLEAR(module);
    return module;
}
