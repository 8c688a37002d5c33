/* somatize.store._speedups: the ordinary case of recording, and of taking a journal in, done in C.
 *
 * Everything here is also done in Python, which is what runs where this module is not there, and whenever something
 * is out of the ordinary: each function then declines, having changed nothing. So this holds no rule of its own, and
 * tests/store/test_speedups.py holds its bytes against those that Python makes.
 */
#include "lock.h"

/* Counted up with each change that somatize/store/speedups.py has to know of: a stale build is left alone. */
#define VERSION 3

static PyMethodDef functions[] = {
    {"rows", (PyCFunction)(void (*)(void))rows, METH_FASTCALL,
     "rows(buffer, fields, most_rows, most_bytes) -> (blocks, odd, end)\n\n"
     "The complete records at the beginning of a stretch of a journal, as columns."},
    {"heads", heads, METH_VARARGS,
     "heads(buffer, base) -> (places, kinds, states, forwards, whens, took) or None\n\n"
     "What the heads of entries say, in columns; None where they do not lead to the end."},
    {"within", within, METH_VARARGS,
     "within(forwards, first, last) -> (from, to)\n\nWhere the numbers lie that are from `first` to `last`."},
    {"highest", highest, METH_O, "highest(forwards) -> int\n\nThe highest number, -1 if there is none."},
    {"totals", totals, METH_VARARGS,
     "totals(kinds, states, whens, took) -> tuple\n\njournal_reader.JournalCounts of the records among entries."},
    {"words", words, METH_O,
     "words(column) -> (kind, bytes)\n\n"
     "A column of words of 64 bits, encoded as record_format.pack_integers does."},
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
