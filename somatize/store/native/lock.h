/* See lock.c. */
#ifndef SOMATIZE_LOCK_H
#define SOMATIZE_LOCK_H

#include "entries.h"
#include <pythread.h>

typedef struct {
    PyObject_HEAD
    PyThread_type_lock lock;
    unsigned long owner; /* the thread that has it, while `depth` is not 0 */
    unsigned depth;
} Lock;

extern PyType_Spec lock_spec;

/* Take it, if no other thread has it; 0 if one does. Nothing is waited for. */
int lock_try(Lock *self);
void lock_leave(Lock *self);

#endif
