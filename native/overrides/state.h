/* What libc keeps in hidden variables of its own, one set per process: one per context instead. */
#ifndef VLCI_STATE_H
#define VLCI_STATE_H

#include "loader/lock.h"
#include "vlcs.h"

#include <float.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

struct vlci_zone;
struct hsearch_data;

/* rand, random, drand48 and kin: random.c */
struct vlci_random {
    vlci_lock lock;
    struct random_data data;
    char table[128]; /* as large as libc's first one, which decides the sequence */
    struct drand48_data data48;
};

/* Time zone and results of localtime and kin: time.c */
struct vlci_time {
    vlci_lock lock;
    struct vlci_zone *zone, *zones; /* in force (NULL: not yet asked), and all that were read */
    long guess;                     /* offset that mktime met last, and tries first */
    char *names[2];                 /* tzname */
    long west;                      /* timezone */
    int daylight;
    struct tm broken_down;
    char text[114]; /* asctime of the largest numbers */
};

/* getopt and kin: getopt.c */
struct vlci_getopt {
    char *argument;                           /* optarg */
    int index, print_errors, option;          /* optind, opterr, optopt */
    const char *rest;                         /* of a cluster of short options; NULL or "": none */
    int operands, operands_end;               /* those that were skipped lie in [operands, operands_end) */
    enum { PERMUTE, STOP, IN_ORDER } operand; /* what to do at one */
    bool started;
};

/* The others: text.c */
struct vlci_text {
    char *token_rest;                  /* strtok */
    char base64[8];                    /* l64a */
    char number[LDBL_MAX_10_EXP + 32]; /* ecvt and kin */
    struct hsearch_data *table;        /* hsearch */
};

struct vlci_libc_state {
    struct vlci_random random;
    struct vlci_time time;
    struct vlci_getopt getopt;
    struct vlci_text text;
};

/* As a fresh process has it. */
void vlci_random_make(struct vlci_random *random);
void vlci_time_make(struct vlci_time *time);
void vlci_time_free(struct vlci_time *time);
void vlci_getopt_make(struct vlci_getopt *getopt);
void vlci_text_free(struct vlci_text *text);

#endif
