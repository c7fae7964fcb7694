/* rand, random, drand48 and kin, each context its own sequence: libc's functions with the state of the caller
 * (random_r, drand48_r), so that a context draws what a process of its own would. */
#include "context/context.h"

void vlci_random_make(struct vlci_random *random) {
    /* libc's own table begins like this; a zeroed drand48_data is a fresh one */
    initstate_r(1, random->table, sizeof random->table, &random->data);
}

long vlci_random(vlc_context *context) {
    struct vlci_random *random = &context->libc.random;
    int32_t drawn = 0;
    VLCI_HOLD(&random->lock);
    random_r(&random->data, &drawn);
    return drawn;
}
int vlci_rand(vlc_context *context) { return (int)vlci_random(context); }

void vlci_srandom(unsigned seed, vlc_context *context) {
    struct vlci_random *random = &context->libc.random;
    VLCI_HOLD(&random->lock);
    srandom_r(seed, &random->data);
}

/* Both give the table that was in use, which begins a word before what random_data names (random(3)). */
char *vlci_initstate(unsigned seed, char *table, size_t size, vlc_context *context) {
    struct vlci_random *random = &context->libc.random;
    VLCI_HOLD(&random->lock);
    char *old = (char *)(random->data.state - 1);
    return initstate_r(seed, table, size, &random->data) ? NULL : old;
}
char *vlci_setstate(char *table, vlc_context *context) {
    struct vlci_random *random = &context->libc.random;
    VLCI_HOLD(&random->lock);
    char *old = (char *)(random->data.state - 1);
    return setstate_r(table, &random->data) ? NULL : old;
}

double vlci_erand48(unsigned short from[3], vlc_context *context) {
    struct vlci_random *random = &context->libc.random;
    double drawn = 0;
    VLCI_HOLD(&random->lock);
    erand48_r(from, &random->data48, &drawn);
    return drawn;
}
long vlci_nrand48(unsigned short from[3], vlc_context *context) {
    struct vlci_random *random = &context->libc.random;
    long drawn = 0;
    VLCI_HOLD(&random->lock);
    nrand48_r(from, &random->data48, &drawn);
    return drawn;
}
long vlci_jrand48(unsigned short from[3], vlc_context *context) {
    struct vlci_random *random = &context->libc.random;
    long drawn = 0;
    VLCI_HOLD(&random->lock);
    jrand48_r(from, &random->data48, &drawn);
    return drawn;
}

double vlci_drand48(vlc_context *context) { return vlci_erand48(context->libc.random.data48.__x, context); }
long vlci_lrand48(vlc_context *context) { return vlci_nrand48(context->libc.random.data48.__x, context); }
long vlci_mrand48(vlc_context *context) { return vlci_jrand48(context->libc.random.data48.__x, context); }

void vlci_srand48(long seed, vlc_context *context) {
    struct vlci_random *random = &context->libc.random;
    VLCI_HOLD(&random->lock);
    srand48_r(seed, &random->data48);
}
unsigned short *vlci_seed48(unsigned short seed[3], vlc_context *context) {
    struct vlci_random *random = &context->libc.random;
    VLCI_HOLD(&random->lock);
    seed48_r(seed, &random->data48);
    return random->data48.__old_x;
}
void vlci_lcong48(unsigned short parameters[7], vlc_context *context) {
    struct vlci_random *random = &context->libc.random;
    VLCI_HOLD(&random->lock);
    lcong48_r(parameters, &random->data48);
}
