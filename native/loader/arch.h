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
#define VLCI_WRAPPER_SIZE 16  /* bytes of a wrapper's thunk, and of its struct vlci_wrapper */
#define VLCI_WRAPPERS 1024    /* in a block; the first is the way out of all */

/* Places of members for arch_x86_64.S, which arch_x86_64.c checks. */
#define VLCI_THREAD_VISIT 0  /* in struct vlci_thread */
#define VLCI_VISIT_CONTEXT 8 /* in struct vlci_visit */
#define VLCI_CONTEXT_WEAK 0  /* in vlc_context */
#define VLCI_WRAPPER_FUNCTION 0
#define VLCI_WRAPPER_WEAK 8
#define VLCI_CALL_INTEGERS 0 /* in struct vlci_arch_call */
#define VLCI_CALL_RAX 48
#define VLCI_CALL_RDX 56
#define VLCI_CALL_FUNCTION 64
#define VLCI_CALL_STACK 72
#define VLCI_CALL_STACK_SIZE 80
#define VLCI_CALL_FLOAT_STATE 88
#define VLCI_CALL_REGISTERS 128
#define VLCI_CALL_SIZE 2944
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
 * had not ended; its first argument, the stack pointer, and the code that made it, if need be by libc's syscall(). */
bool vlci_arch_interrupted_call(const void *machine, uintptr_t *argument, uintptr_t *stack, void **caller);

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

/* A call of any signature on its way to another stack, or thread: what it passes in registers and on the stack,
 * and then what it returns in registers. vlci_arch_call makes it. */
struct vlci_arch_call {
    uint64_t integers[6]; /* rdi, rsi, rdx, rcx, r8, r9 */
    uint64_t rax, rdx;    /* rax: the number of vector arguments of a variadic function; then results */
    void *function;
    const char *stack;                          /* arguments on the stack of the caller */
    size_t stack_size;                          /* how many bytes of them are passed on; a multiple of 16 */
    struct vlci_float_state float_state;        /* of the caller */
    _Alignas(64) unsigned char registers[2816]; /* xsave's standard form: x87, SSE, AVX, AVX-512 */
};
void vlci_arch_call(struct vlci_arch_call *call);
void vlci_arch_call_nothing(struct vlci_arch_call *call); /* all results are 0 */

/* The thunks of wrappers, as vlci_thunk_code: VLCI_WRAPPERS of them, of which the first is used by the others,
 * with an array of struct vlci_wrapper behind, whose first `function` is vlci_wrapped_entry. */
extern const char vlci_wrapper_code[];
void vlci_wrapped_entry(void);

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
