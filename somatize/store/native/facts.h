/* See facts.c. */
#ifndef SOMATIZE_FACTS_H
#define SOMATIZE_FACTS_H

#include "packed.h"

typedef struct {
    PyObject *kind, *field; /* of the tuple in `fields` */
    PyObject *said;         /* borrowed during a call */
} Wanted;

/* An entry being packed, and the values of its `count` summarised fields. */
typedef struct {
    Packed entry;
    PyObject *fields, *kinds; /* pairs of a kind and a name; the engine's kinds */
    Wanted *wanted;
    Py_ssize_t count;
} Sheet;

/* Initialises this file; 0 if there is no memory. */
int facts_begin(void);

/* Set the summarised fields from `fields`, which the caller has set; 0 and an error if they are invalid. */
int take_fields(Sheet *self, PyObject *fields);
void sheet_free(Sheet *self);

PyObject *put_fact(Sheet *self, PyObject *fact);
PyObject *put_said(Sheet *self, PyObject *given);
Py_ssize_t put_summary(Sheet *self);
int microseconds(PyObject *text, uint64_t *value);

#endif
