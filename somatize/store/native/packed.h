/* See packed.c. Each function that packs gives 0, perhaps with an error set, where it cannot. */
#ifndef SOMATIZE_PACKED_H
#define SOMATIZE_PACKED_H

#include "entries.h"

#define MOST_PACKED (512u << 10) /* from there on texts may have to be cut: record_format._LOOK_CLOSER */

typedef struct {
    unsigned char *bytes; /* `used` of `room` */
    size_t used, room;
} Packed;

/* Where the next bytes go, with room for so many more; NULL if there is no memory. */
unsigned char *reserve(Packed *self, size_t more);

int put_text(Packed *self, const char *text, size_t length);
int put_head(Packed *self, size_t count, unsigned char few, unsigned char many);
int put_str(Packed *self, PyObject *text);
int put_double(Packed *self, double value);

/* The text of a float, of a word, or a text. */
int put_value(Packed *self, PyObject *value);

int is_text(PyObject *text, const char *wanted);

#endif
