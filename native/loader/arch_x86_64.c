#include "context/context.h"
#include "context/wrap.h"
#include "loader/arch.h"
#include "loader/thread.h"
#include "loader/tls.h"

#include <cpuid.h>
#include <errno.h>
#include <string.h>
#include <ucontext.h>

/* Since binutils 2.36 / glibc 2.31 these are in elf.h under the same numbers; psABI, table 4.10. */
#define R_TLSDESC 36

enum vlci_relocation vlci_arch_relocation(uint32_t type) {
    switch (type) {
    case R_X86_64_NONE: return VLCI_RELOCATE_NOTHING;
    case R_X86_64_RELATIVE: return VLCI_RELOCATE_RELATIVE;
    case R_X86_64_IRELATIVE: return VLCI_RELOCATE_INDIRECT;
    case R_X86_64_64: return VLCI_RELOCATE_ADDRESS;
    case R_X86_64_JUMP_SLOT: return VLCI_RELOCATE_FUNCTION;
    case R_X86_64_GLOB_DAT: return VLCI_RELOCATE_DATA;
    case R_X86_64_DTPMOD64: return VLCI_RELOCATE_TLS_MODULE;
    case R_X86_64_DTPOFF64: return VLCI_RELOCATE_TLS_OFFSET;
    case R_X86_64_TPOFF64: return VLCI_RELOCATE_TLS_STATIC;
    case R_TLSDESC: return VLCI_RELOCATE_TLS_DESCRIPTOR;
    default: return VLCI_RELOCATE_UNKNOWN;
    }
}

void vlci_tlsdesc_static(void); /* arch_x86_64.S */
void vlci_tlsdesc_dynamic(void);
void vlci_tlsdesc_undefined(void);

void vlci_arch_tlsdesc_static(uintptr_t descriptor[2], ptrdiff_t offset) {
    descriptor[0] = (uintptr_t)vlci_tlsdesc_static;
    descriptor[1] = offset;
}

void vlci_arch_tlsdesc_dynamic(uintptr_t descriptor[2], const void *argument) {
    descriptor[0] = (uintptr_t)vlci_tlsdesc_dynamic;
    descriptor[1] = (uintptr_t)argument;
}

void vlci_arch_tlsdesc_undefined(uintptr_t descriptor[2], ptrdiff_t addend) {
    descriptor[0] = (uintptr_t)vlci_tlsdesc_undefined;
    descriptor[1] = addend;
}

/* Called by vlci_tlsdesc_dynamic, which has saved every register. */
ptrdiff_t vlci_tlsdesc_offset(struct vlci_tls_index *index) {
    return (char *)vlci_tls_address(index) - vlci_arch_thread_pointer();
}

extern long (*vlci_host_syscall)(long, ...); /* overrides/cpu.c */

bool vlci_arch_interrupted_call(const void *machine, uintptr_t *argument, uintptr_t *stack, void **caller) {
    const greg_t *registers = ((const ucontext_t *)machine)->uc_mcontext.gregs;
    const unsigned char *next = (const unsigned char *)registers[REG_RIP];
    *argument = (uintptr_t)registers[REG_RDI];
    *stack = (uintptr_t)registers[REG_RSP];
    /* that makes it within its first 64 bytes (after 25 in 2.36), with nothing on the stack but where it returns to */
    bool by_libc = (uintptr_t)next - (uintptr_t)vlci_host_syscall < 64;
    *caller = by_libc ? *(void **)*stack : (void *)next;
    return registers[REG_RAX] == -EINTR && next[-2] == 0x0f && next[-1] == 0x05; /* syscall */
}

const struct vlci_float_state vlci_arch_float_initial = { 0x1f80, 0x37f }; /* psABI, 3.4.1 */

void vlci_arch_float_save(struct vlci_float_state *state) {
    uint16_t x87;
    __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(state->vector), "=m"(x87));
    state->x87 = x87;
}

void vlci_arch_float_restore(const struct vlci_float_state *state) {
    struct vlci_float_state now;
    vlci_arch_float_save(&now);
    uint16_t x87 = state->x87;
    uint32_t flags = now.vector & 0x3f; /* sticky exception flags stay */
    uint32_t vector = (state->vector & ~0x3fu) | flags;
    if (now.vector != vector) __asm__ volatile("ldmxcsr %0" : : "m"(vector));
    if (now.x87 != state->x87) __asm__ volatile("fldcw %0" : : "m"(x87));
}

#define AT(record, member, place) _Static_assert(offsetof(record, member) == (place), #member)
AT(struct vlci_thread, visit, VLCI_THREAD_VISIT);
AT(struct vlci_visit, context, VLCI_VISIT_CONTEXT);
AT(vlc_context, weak, VLCI_CONTEXT_WEAK);
AT(struct vlci_wrapper, function, VLCI_WRAPPER_FUNCTION);
AT(struct vlci_wrapper, weak, VLCI_WRAPPER_WEAK);
_Static_assert(sizeof(struct vlci_wrapper) == VLCI_WRAPPER_SIZE, "struct vlci_wrapper");
AT(struct vlci_arch_call, integers, VLCI_CALL_INTEGERS);
AT(struct vlci_arch_call, rax, VLCI_CALL_RAX);
AT(struct vlci_arch_call, rdx, VLCI_CALL_RDX);
AT(struct vlci_arch_call, function, VLCI_CALL_FUNCTION);
AT(struct vlci_arch_call, stack, VLCI_CALL_STACK);
AT(struct vlci_arch_call, stack_size, VLCI_CALL_STACK_SIZE);
AT(struct vlci_arch_call, float_state, VLCI_CALL_FLOAT_STATE);
AT(struct vlci_arch_call, registers, VLCI_CALL_REGISTERS);
_Static_assert(sizeof(struct vlci_arch_call) == VLCI_CALL_SIZE, "struct vlci_arch_call");

void vlci_arch_call_nothing(struct vlci_arch_call *call) {
    call->rax = call->rdx = 0;
    memset(call->registers + 512, 0, 64); /* the header: xrstor makes all registers those of a new process */
}

void *vlci_arch_program_counter(const void *machine) {
    return (void *)((const ucontext_t *)machine)->uc_mcontext.gregs[REG_RIP];
}

int vlci_arch_level(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("popcnt") ||
        !__builtin_cpu_supports("ssse3"))
        return 1;
    unsigned a, b, c, d;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") ||
        !__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("fma") ||
        !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C) || !(c & bit_MOVBE) ||
        !__get_cpuid(0x80000001, &a, &b, &c, &d) || !(c & bit_LZCNT))
        return 2;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl"))
        return 3;
    return 4;
}
