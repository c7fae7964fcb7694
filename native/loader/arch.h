/* All that depends on the processor: arch_x86_64.c and arch_x86_64.S. */
#ifndef VLCI_ARCH_H
#define VLCI_ARCH_H

#if defined(__x86_64__)
#define VLCI_ARCH_MACHINE 62 /* EM_X86_64 */
#define VLCI_ARCH_NAME "x86-64"
#define VLCI_ARCH_CACHE_FLAGS 0x303                 /* FLAG_ELF_LIBC6 | FLAG_X8664_LIB64 of ld.so.cache */
#define VLCI_ARCH_LIB "lib/x86_64-linux-gnu"        /* what $LIB means, as Debian builds ld.so */
#define VLCI_ARCH_HWCAPS "/glibc-hwcaps/x86-64-v0/" /* the digit is the level */
#define VLCI_ARCH_LINKER "ld-linux-x86-64.so.2"
#define VLCI_ARCH_LIBRARY_PATH                                                                               \
    "/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib64:/usr/lib64:/lib:/usr/lib"
#define VLCI_THUNK_SIZE 32
#define VLCI_THUNK_CODE 16384 /* bytes of thunks; their data page follows */
#else
#error "VLCs run on x86-64; another machine needs native/loader/arch_*.c"
#endif

#define VLCI_THUNK_MISSING 64 /* entries for functions that could not be found (RTLD_LAZY) */

#ifndef __ASSEMBLER__
#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vlci_relocation {
    VLCI_RELOCATE_NOTHING,
    VLCI_RELOCATE_RELATIVE,   /* bias + addend */
    VLCI_RELOCATE_INDIRECT,   /* what the function at bias + addend returns */
    VLCI_RELOCATE_ADDRESS,    /* symbol + addend */
    VLCI_RELOCATE_FUNCTION,   /* symbol, a PLT slot: may be bound lazily */
    VLCI_RELOCATE_DATA,       /* symbol, a GOT slot */
    VLCI_RELOCATE_TLS_MODULE, /* its TLS module */
    VLCI_RELOCATE_TLS_OFFSET, /* its offset in the module's block */
    VLCI_RELOCATE_TLS_STATIC, /* its offset from the thread pointer */
    VLCI_RELOCATE_TLS_DESCRIPTOR,
    VLCI_RELOCATE_UNKNOWN
};
enum vlci_relocation vlci_arch_relocation(uint32_t type);

/* Fills the two words of a TLS descriptor. */
void vlci_arch_tlsdesc_static(uintptr_t descriptor[2], ptrdiff_t offset);
void vlci_arch_tlsdesc_dynamic(uintptr_t descriptor[2], const void *argument);
void vlci_arch_tlsdesc_undefined(uintptr_t descriptor[2], ptrdiff_t addend);

/* Tells the processor that this is a spin loop. */
static inline void vlci_arch_pause(void) { __builtin_ia32_pause(); }

static inline char *vlci_arch_thread_pointer(void) {
    char *pointer; /* __builtin_thread_pointer is there from GCC 11 only */
    __asm__("mov %%fs:0, %0" : "=r"(pointer));
    return pointer;
}

/* For a signal handler, given its machine context: true when the thread was taken out of a system call that
 * had not ended; its first argument, and the stack pointer. */
bool vlci_arch_interrupted_call(const void *machine, uintptr_t *argument, uintptr_t *stack);

/* Floating-point control of this thread: rounding, exception masks, flush-to-zero. */
struct vlci_float_state {
    uint32_t vector, x87;
};
void vlci_arch_float_save(struct vlci_float_state *state);
void vlci_arch_float_restore(const struct vlci_float_state *state);
extern const struct vlci_float_state vlci_arch_float_initial; /* of a new process */

/* Where the thread was when a signal came: of the third argument of a handler. */
void *vlci_arch_program_counter(const void *machine);

/* Best x86-64-v level of this processor: 1 to 4. Selects directories of libraries (glibc-hwcaps). */
int vlci_arch_level(void);

/* The thunks in our own text, one per row of overrides.def, then VLCI_THUNK_MISSING entries. A copy of
 * these pages, mapped with a data page behind, is a context's. */
extern const char vlci_thunk_code[];
struct vlci_thunk_data {
    void *context;
    void *missing; /* called with (context, number) */
    void *targets[];
};

#endif
#endif
