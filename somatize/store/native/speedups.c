/* somatize.store._speedups: the ordinary cases of writing and reading journals, in C.
 *
 * Python does the same if this module is missing, and whenever a case is not ordinary: the function then declines and
 * has changed nothing. tests/store/test_speedups.py compares the bytes with those that Python makes.
 */
#include "lock.h"

/* Incremented with each change of the interface; somatize/store/speedups.py ignores a module of another version. */
#define VERSION 4

static PyMethodDef functions[] = {
    {"rows", (PyCFunction)(void (*)(void))rows, METH_FASTCALL,
     "rows(buffer, fields, most_rows, most_bytes) -> (blocks, odd, end)\n\n"
     "The complete records at the beginning of a stretch of a journal, as columns."},
    {"heads", heads, METH_VARARGS,
     "heads(buffer, base) -> (places, kinds, states, forwards, whens, took) or None\n\n"
     "The heads of entries, as columns; None if they do not lead to the end."},
    {"within", within, METH_VARARGS,
     "within(forwards, first, last) -> (from, to)\n\nThe indexes between which all numbers from `first` to `last` lie."},
    {"highest", highest, METH_O, "highest(forwards) -> int\n\nThe highest number, -1 if there is none."},
    {"totals", totals, METH_VARARGS,
     "totals(kinds, states, whens, took) -> tuple\n\njournal_reader.JournalCounts of the records among entries."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_speedups", .m_doc = "See somatize/store/speedups.py.", .m_size = -1,
    .m_methods = functions,
};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec, PyObject **known)
{
    PyObject *type = PyType_FromSpec(spec);
    if (type == NULL || PyModule_AddObjectRef(module, name, type) < 0) {
        Py_XDECREF(type);
        return 0;
    }
    if (known != NULL)
        *known = Py_NewRef(type);
    Py_DECREF(type);
    return 1;
}

PyMODINIT_FUNC PyInit__speedups(void)
{
    crc32_begin();
    PyObject *module = pen_begin() ? PyModule_Create(&definition) : NULL;
    if (module == NULL)
        return NULL;
    if (!add_type(module, "Lock", &lock_spec, &LOCK_TYPE) || !add_type(module, "Pen", &pen_spec, NULL)
        || PyModule_AddIntConstant(module, "VERSION", VERSION) < 0)
        Py_CLEAR(module);
    return module;
}
