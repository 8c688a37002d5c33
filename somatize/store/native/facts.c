/* Packing of facts and of their summarised fields; see somatize/store/record_format.py. */
#include "facts.h"

#define LONGEST_NUMBER 18 /* digits that always fit in a word */

static PyObject *NAME_FACT;

/* Note the values of summarised fields in a fact. */
static int look(Sheet *self, PyObject *fact, PyObject *kind)
{
    for (Wanted *one = self->wanted; one < self->wanted + self->count; one++) {
        if (one->kind != kind && PyUnicode_Compare(one->kind, kind) != 0)
            continue;
        PyObject *said = PyDict_GetItemWithError(fact, one->field);
        if (said != NULL)
            one->said = said;
        else if (PyErr_Occurred())
            return 0;
    }
    return !PyErr_Occurred();
}

/* Pack a fact that is a dict of texts; returns its kind, or NULL. */
PyObject *put_fact(Sheet *self, PyObject *fact)
{
    PyObject *key, *text, *kind;
    Py_ssize_t at = 0;
    if (!PyDict_CheckExact(fact) || !put_head(&self->entry, (size_t)PyDict_Size(fact), 0x80, 0xDE))
        return NULL;
    while (PyDict_Next(fact, &at, &key, &text))
        if (!put_str(&self->entry, key) || !put_str(&self->entry, text))
            return NULL;
    kind = PyDict_GetItemWithError(fact, NAME_FACT);
    return kind != NULL && look(self, fact, kind) ? kind : NULL;
}

/* Pack a fact as `facts.said` makes it, if it is simple: its kind first, and floats, integers or texts. */
PyObject *put_said(Sheet *self, PyObject *given)
{
    PyObject *key, *value, *kind = NULL;
    Py_ssize_t at = 0, length;
    if (!PyDict_CheckExact(given) || !put_head(&self->entry, (size_t)PyDict_Size(given), 0x80, 0xDE))
        return NULL;
    while (PyDict_Next(given, &at, &key, &value)) {
        if (!put_str(&self->entry, key) || !put_value(&self->entry, value))
            return NULL;
        if (kind == NULL) {
            if (!is_text(key, "fact") || !PyUnicode_CheckExact(value) || PySet_Contains(self->kinds, value) != 0
                || PyUnicode_AsUTF8AndSize(value, &length) == NULL || length == 0)
                return NULL;
            kind = value;
        }
    }
    return kind != NULL && look(self, given, kind) ? kind : NULL;
}

/* Parse the text of a duration in microseconds. */
int microseconds(PyObject *text, uint64_t *value)
{
    Py_ssize_t length;
    const char *digits;
    if (text == NULL || !PyUnicode_CheckExact(text) || (digits = PyUnicode_AsUTF8AndSize(text, &length)) == NULL
        || length < 1 || length > LONGEST_NUMBER)
        return 0;
    *value = 0;
    for (Py_ssize_t i = 0; i < length; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return 0;
        *value = *value * 10 + (uint64_t)(digits[i] - '0');
    }
    return 1;
}

int take_fields(Sheet *self, PyObject *fields)
{
    Py_ssize_t count = PyTuple_Size(fields);
    self->wanted = PyMem_Calloc((size_t)count + 1, sizeof *self->wanted);
    if (self->wanted == NULL)
        return PyErr_NoMemory() != NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyTuple_GetItem(fields, i);
        if (pair == NULL || !PyTuple_CheckExact(pair) || PyTuple_Size(pair) != 2
            || !PyUnicode_CheckExact(PyTuple_GetItem(pair, 0)) || !PyUnicode_CheckExact(PyTuple_GetItem(pair, 1))) {
            PyErr_SetString(PyExc_TypeError, "fields are pairs of texts: a kind, and the name of what is said");
            return 0;
        }
        self->wanted[i].kind = PyTuple_GetItem(pair, 0);
        self->wanted[i].field = PyTuple_GetItem(pair, 1);
    }
    self->count = count;
    return 1;
}

/* Pack the summary behind the facts and move it before them; returns its size, or -1. */
Py_ssize_t put_summary(Sheet *self)
{
    size_t facts_end = self->entry.used, body = facts_end - ENTRY_HEAD, summed;
    int any = 0;
    for (Py_ssize_t i = 0; i < self->count; i++)
        any |= self->wanted[i].said != NULL;
    if (!any)
        return 0;
    if (!put_head(&self->entry, (size_t)self->count, 0x90, 0xDC))
        return -1;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        PyObject *said = self->wanted[i].said;
        unsigned char *to;
        if (said == NULL) {
            if ((to = reserve(&self->entry, 1)) == NULL)
                return -1;
            to[0] = 0xC0;
            self->entry.used += 1;
        } else if (PyFloat_CheckExact(said) && PyFloat_AsDouble(said) == PyFloat_AsDouble(said)) {
            if (!put_double(&self->entry, PyFloat_AsDouble(said)))
                return -1;
        } else if (!put_value(&self->entry, said)) { /* a NaN is its text: record_format.Packer.pack_one */
            return -1;
        }
    }
    summed = self->entry.used - facts_end;
    unsigned char *facts, *turned;
    if (reserve(&self->entry, summed) == NULL)
        return -1;
    facts = self->entry.bytes + ENTRY_HEAD;
    turned = self->entry.bytes + self->entry.used;
    memcpy(turned, self->entry.bytes + facts_end, summed);
    memmove(facts + summed, facts, body);
    memcpy(facts, turned, summed);
    return (Py_ssize_t)summed;
}

int facts_begin(void)
{
    return (NAME_FACT = PyUnicode_InternFromString("fact")) != NULL;
}

void sheet_free(Sheet *self)
{
    Py_XDECREF(self->fields);
    Py_XDECREF(self->kinds);
    PyMem_Free(self->wanted);
    PyMem_Free(self->entry.bytes);
}
