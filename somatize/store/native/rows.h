/* See rows.c and blocks.c. */
#ifndef SOMATIZE_ROWS_H
#define SOMATIZE_ROWS_H

#include "entries.h"

#define MOST_FIELDS 1024 /* each row has a word for each: of more, none is taken in */

typedef struct {
    uint64_t forward, took, when;
    uint32_t nodes;
    uint8_t state, left; /* `left`: what follows about it is odd */
    size_t body;         /* bytes of its facts */
    size_t to;           /* where its next facts go, in their block */
} Row;

typedef struct {
    size_t row, at, size;
} Piece;

typedef struct {
    const unsigned char *data;
    size_t size, end, fields;
    Row *rows;
    size_t rows_count, rows_room;
    uint64_t next; /* above all numbers named so far: the lowest that a record may have */
    Piece *pieces;
    size_t pieces_count, pieces_room;
    size_t *odd;
    size_t odd_count, odd_room;
    size_t *said; /* per row and field, 1 + where the msgpack of what was said stands; 0 for nothing */
    size_t said_room;
} Stretch;

/* How many bytes the text, the float or the nil takes that stands there; 0 if it is none of them. */
size_t value_size(const unsigned char *at, size_t left);

/* Go through the entries up to the first that is not whole. 0 if there is no memory. */
int take_all(Stretch *stretch);

#endif
