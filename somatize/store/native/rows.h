/* See rows.c and blocks.c. */
#ifndef SOMATIZE_ROWS_H
#define SOMATIZE_ROWS_H

#include "entries.h"

#define MOST_FIELDS 1024 /* each row has a word for each; with more, nothing is parsed */

typedef struct {
    uint64_t forward, took, when;
    uint32_t nodes;
    uint8_t state, left; /* `left`: further entries of it are odd */
    size_t body;         /* size of its facts in bytes */
    size_t to;           /* offset of its next facts in their block */
} Row;

typedef struct {
    size_t row, at, size;
} Piece;

typedef struct {
    const unsigned char *data;
    size_t size, end, fields;
    Row *rows;
    size_t rows_count, rows_room;
    uint64_t next; /* above all numbers so far: the lowest that a record may have */
    Piece *pieces;
    size_t pieces_count, pieces_room;
    size_t *odd;
    size_t odd_count, odd_room;
    size_t *said; /* per row and field, 1 + the offset of the packed value; 0 for none */
    size_t said_room;
} Stretch;

/* The size of a packed text, float or nil; 0 for anything else. */
size_t value_size(const unsigned char *at, size_t left);

/* Parse the entries up to the first invalid one. 0 if there is no memory. */
int take_all(Stretch *stretch);

#endif
