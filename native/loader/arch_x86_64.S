/* Entry points with calling conventions of their own, and the thunks. */
#include "loader/arch.h"

    .text

/* TLS descriptors: the descriptor in %rax, the offset from the thread pointer returned in %rax, every
 * other register kept (psABI, "TLS descriptors"). */
    .globl vlci_tlsdesc_static
    .hidden vlci_tlsdesc_static
    .type vlci_tlsdesc_static, @function
vlci_tlsdesc_static:
    .cfi_startproc
    endbr64
    mov 8(%rax), %rax
    ret
    .cfi_endproc
    .size vlci_tlsdesc_static, . - vlci_tlsdesc_static

    .globl vlci_tlsdesc_undefined
    .hidden vlci_tlsdesc_undefined
    .type vlci_tlsdesc_undefined, @function
vlci_tlsdesc_undefined:
    .cfi_startproc
    endbr64
    mov 8(%rax), %rax
    sub %fs:0, %rax
    ret
    .cfi_endproc
    .size vlci_tlsdesc_undefined, . - vlci_tlsdesc_undefined

/* The fast path of vlci_tls_address touches only integer registers, but the first touch of a block calls
 * into C: all vector state is saved by xsave (SSE, AVX, MPX, AVX-512: 0xee; our C code touches neither x87 nor AMX tiles). */
    .globl vlci_tlsdesc_dynamic
    .hidden vlci_tlsdesc_dynamic
    .type vlci_tlsdesc_dynamic, @function
vlci_tlsdesc_dynamic:
    .cfi_startproc
    endbr64
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    mov %rsp, %rbp
    .cfi_def_cfa_register %rbp
    push %rdi
    push %rsi
    push %rdx
    push %rcx
    push %r8
    push %r9
    push %r10
    push %r11
    push %rbx
    mov 8(%rax), %rdi
    mov %rsp, %rbx
    sub $4096, %rsp
    and $-64, %rsp
    xor %edx, %edx
    mov %rdx, 512(%rsp) /* the xsave header must be zero */
    mov %rdx, 520(%rsp)
    mov %rdx, 528(%rsp)
    mov %rdx, 536(%rsp)
    mov %rdx, 544(%rsp)
    mov %rdx, 552(%rsp)
    mov %rdx, 560(%rsp)
    mov %rdx, 568(%rsp)
    mov $0xee, %eax
    xsave (%rsp)
    call vlci_tlsdesc_offset
    mov %rax, %rcx
    mov $0xee, %eax
    xor %edx, %edx
    xrstor (%rsp)
    mov %rcx, %rax
    mov %rbx, %rsp
    pop %rbx
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rcx
    pop %rdx
    pop %rsi
    pop %rdi
    pop %rbp
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size vlci_tlsdesc_dynamic, . - vlci_tlsdesc_dynamic

/* Functions with six register arguments: the thunk leaves the context in %r11, and it becomes the seventh. */
    .macro SEVENTH name, function
    .globl \name
    .hidden \name
    .type \name, @function
\name:
    .cfi_startproc
    endbr64
    push %r11
    .cfi_adjust_cfa_offset 8
    call \function
    pop %r11
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size \name, . - \name
    .endm
    SEVENTH vlci_mmap_entry, vlci_mmap
    SEVENTH vlci_posix_spawn_entry, vlci_posix_spawn
    SEVENTH vlci_posix_spawnp_entry, vlci_posix_spawnp
    SEVENTH vlci_pidfd_spawn_entry, vlci_pidfd_spawn
    SEVENTH vlci_pidfd_spawnp_entry, vlci_pidfd_spawnp

/* function(first, ...) with pointers only (execl and kin) becomes function(first, array, context): the five
 * that came in registers go below those on the stack, in the place of the return address, which waits in a
 * slot of ours. Nothing is copied, so that any number of them costs no memory. */
    .macro ARRAY name, function
    .globl \name
    .hidden \name
    .type \name, @function
\name:
    .cfi_startproc
    endbr64
    pop %rax
    .cfi_def_cfa_offset 0
    .cfi_register %rip, %rax
    push %r9
    .cfi_adjust_cfa_offset 8
    push %r8
    .cfi_adjust_cfa_offset 8
    push %rcx
    .cfi_adjust_cfa_offset 8
    push %rdx
    .cfi_adjust_cfa_offset 8
    push %rsi
    .cfi_adjust_cfa_offset 8
    mov %rsp, %rsi
    mov %r11, %rdx
    push %rax
    .cfi_adjust_cfa_offset 8
    .cfi_offset %rip, -48
    call \function
    pop %rcx
    .cfi_adjust_cfa_offset -8
    .cfi_register %rip, %rcx
    add $40, %rsp
    .cfi_adjust_cfa_offset -40
    push %rcx
    .cfi_adjust_cfa_offset 8
    .cfi_offset %rip, -8
    ret
    .cfi_endproc
    .size \name, . - \name
    .endm
    ARRAY vlci_execl_entry, vlci_execl
    ARRAY vlci_execlp_entry, vlci_execlp
    ARRAY vlci_execle_entry, vlci_execle

/* syscall(2) of memory policies has a number and six arguments: the last is on the stack, above our return address
 * and the context. */
    SEVENTH vlci_syscall_memory_entry, vlci_syscall_memory

/* syscall(2): only five numbers are ours; the rest must reach libc with its stack untouched (vfork, clone). */
    .globl vlci_syscall_entry
    .hidden vlci_syscall_entry
    .type vlci_syscall_entry, @function
vlci_syscall_entry:
    .cfi_startproc
    endbr64
    cmp $203, %rdi /* sched_setaffinity */
    je 1f
    cmp $204, %rdi /* sched_getaffinity */
    je 1f
    lea -237(%rdi), %rax /* mbind, set_mempolicy, get_mempolicy */
    cmp $2, %rax
    jbe vlci_syscall_memory_entry
    jmp *vlci_host_syscall(%rip)
1:  mov %r11, %r8
    jmp vlci_syscall_affinity
    .cfi_endproc
    .size vlci_syscall_entry, . - vlci_syscall_entry

/* A wrapped pointer was called: the thunk leaves its struct vlci_wrapper in %r11. On a thread that is inside the
 * context already it is a plain jump, whatever the arguments. Else the call is made once more, by
 * vlci_wrapped_call, with what came in registers and a bounded copy of the caller's stack. To leave the
 * arguments in place and change the return address instead would copy nothing, but shadow stacks forbid it, and
 * no unwinder would find the caller. */
    .globl vlci_wrapped_entry
    .hidden vlci_wrapped_entry
    .type vlci_wrapped_entry, @function
vlci_wrapped_entry:
    .cfi_startproc
    endbr64
    mov vlci_thread_current@gottpoff(%rip), %r10
    mov %fs:(%r10), %r10
    test %r10, %r10
    jz 1f
    mov VLCI_THREAD_VISIT(%r10), %r10
    mov VLCI_VISIT_CONTEXT(%r10), %r10
    test %r10, %r10
    jz 1f
    mov VLCI_CONTEXT_WEAK(%r10), %r10
    cmp %r10, VLCI_WRAPPER_WEAK(%r11)
    jne 1f
    jmp *VLCI_WRAPPER_FUNCTION(%r11)
1:  push %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    mov %rsp, %rbp
    .cfi_def_cfa_register %rbp
    sub $VLCI_CALL_SIZE, %rsp
    and $-64, %rsp
    mov %rdi, VLCI_CALL_INTEGERS(%rsp)
    mov %rsi, VLCI_CALL_INTEGERS + 8(%rsp)
    mov %rdx, VLCI_CALL_INTEGERS + 16(%rsp)
    mov %rcx, VLCI_CALL_INTEGERS + 24(%rsp)
    mov %r8, VLCI_CALL_INTEGERS + 32(%rsp)
    mov %r9, VLCI_CALL_INTEGERS + 40(%rsp)
    mov %rax, VLCI_CALL_RAX(%rsp)
    lea 16(%rbp), %rax
    mov %rax, VLCI_CALL_STACK(%rsp)
    stmxcsr VLCI_CALL_FLOAT_STATE(%rsp)
    fnstcw VLCI_CALL_FLOAT_STATE + 4(%rsp)
    lea VLCI_CALL_REGISTERS + 512(%rsp), %rdi /* the xsave header must be zero */
    xor %eax, %eax
    mov $8, %ecx
    rep stosq
    mov $0xe6, %eax /* SSE, AVX, AVX-512 */
    xor %edx, %edx
    xsave VLCI_CALL_REGISTERS(%rsp)
    mov %r11, %rdi
    mov %rsp, %rsi
    call vlci_wrapped_call
    mov $0xe7, %eax /* and x87: a long double is returned there */
    xor %edx, %edx
    xrstor VLCI_CALL_REGISTERS(%rsp)
    ldmxcsr VLCI_CALL_FLOAT_STATE(%rsp) /* xrstor took those that the function left */
    fldcw VLCI_CALL_FLOAT_STATE + 4(%rsp)
    mov VLCI_CALL_RAX(%rsp), %rax
    mov VLCI_CALL_RDX(%rsp), %rdx
    leave
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size vlci_wrapped_entry, . - vlci_wrapped_entry

/* vlci_arch_call(call). Its frame has a personality, which leaves the context when an exception or pthread_exit
 * passes through; one of ours, since those of C and C++ would bind libvlcs.so to an unwinder. */
    .globl vlci_arch_call
    .hidden vlci_arch_call
    .type vlci_arch_call, @function
vlci_arch_call:
    .cfi_startproc
    .cfi_personality 0x1b, vlci_wrapped_personality /* DW_EH_PE_pcrel | DW_EH_PE_sdata4 */
    endbr64
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    mov %rsp, %rbp
    .cfi_def_cfa_register %rbp
    push %rbx
    .cfi_offset %rbx, -24
    mov %rdi, %rbx
    mov VLCI_CALL_STACK_SIZE(%rbx), %rcx
    sub %rcx, %rsp
    and $-64, %rsp /* as an argument of 64 bytes wants it */
    mov %rsp, %rdi
    mov VLCI_CALL_STACK(%rbx), %rsi
    shr $3, %rcx
    rep movsq
    mov $0xe6, %eax
    xor %edx, %edx
    xrstor VLCI_CALL_REGISTERS(%rbx)
    mov VLCI_CALL_INTEGERS(%rbx), %rdi
    mov VLCI_CALL_INTEGERS + 8(%rbx), %rsi
    mov VLCI_CALL_INTEGERS + 16(%rbx), %rdx
    mov VLCI_CALL_INTEGERS + 24(%rbx), %rcx
    mov VLCI_CALL_INTEGERS + 32(%rbx), %r8
    mov VLCI_CALL_INTEGERS + 40(%rbx), %r9
    mov VLCI_CALL_RAX(%rbx), %rax
    call *VLCI_CALL_FUNCTION(%rbx)
    mov %rax, VLCI_CALL_RAX(%rbx)
    mov %rdx, VLCI_CALL_RDX(%rbx)
    mov $0xe7, %eax
    xor %edx, %edx
    xsave VLCI_CALL_REGISTERS(%rbx)
    emms
    mov -8(%rbp), %rbx
    leave
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size vlci_arch_call, . - vlci_arch_call

/* The thunks: page-aligned, position-independent against the data page behind them, so that mapping these
 * pages again beside other data makes another context's. Nothing is written to code. */
    .section .text.vlci_thunks, "ax", @progbits
    .balign 4096
    .globl vlci_thunk_code
    .hidden vlci_thunk_code
vlci_thunk_code:
    .set data, vlci_thunk_code + VLCI_THUNK_CODE
    .set row, 0

    .macro THUNK register
    .balign VLCI_THUNK_SIZE
    .cfi_startproc
    endbr64
    mov data(%rip), \register
    jmp *data + 16 + row * 8(%rip)
    .cfi_endproc
    .set row, row + 1
    .endm
    .macro NO_THUNK
    .balign VLCI_THUNK_SIZE
    int3
    .set row, row + 1
    .endm

#define CONTEXT_AFTER_0 THUNK %rdi
#define CONTEXT_AFTER_1 THUNK %rsi
#define CONTEXT_AFTER_2 THUNK %rdx
#define CONTEXT_AFTER_3 THUNK %rcx
#define CONTEXT_AFTER_4 THUNK %r8
#define CONTEXT_AFTER_5 THUNK %r9
#define CONTEXT_IN_SCRATCH THUNK %r11
#define NO_CONTEXT NO_THUNK
#define DATUM NO_THUNK
#define OVERRIDE(name, function, how, group) how;
#include "overrides/overrides.def"
    .balign VLCI_THUNK_SIZE

/* Functions that could not be found (RTLD_LAZY): each has an entry that knows its number. */
    .globl vlci_thunk_missing
    .hidden vlci_thunk_missing
vlci_thunk_missing:
    .set number, 0
    .rept VLCI_THUNK_MISSING
    .balign VLCI_THUNK_SIZE
    .cfi_startproc
    endbr64
    mov data(%rip), %rdi
    mov $number, %esi
    jmp *data + 8(%rip)
    .cfi_endproc
    .set number, number + 1
    .endr
    .balign VLCI_THUNK_SIZE
    .org vlci_thunk_code + VLCI_THUNK_CODE /* an error here: the rows outgrew it */

/* Those of wrapped pointers, 16 bytes each. */
    .globl vlci_wrapper_code
    .hidden vlci_wrapper_code
vlci_wrapper_code:
    .cfi_startproc
    jmp *vlci_wrapper_code + VLCI_WRAPPERS * VLCI_WRAPPER_SIZE(%rip)
    .set number, 1
    .rept VLCI_WRAPPERS - 1
    .balign VLCI_WRAPPER_SIZE
    endbr64
    lea vlci_wrapper_code + (VLCI_WRAPPERS + number) * VLCI_WRAPPER_SIZE(%rip), %r11
    jmp vlci_wrapper_code
    .set number, number + 1
    .endr
    .balign VLCI_WRAPPER_SIZE
    .cfi_endproc
    .org vlci_wrapper_code + VLCI_WRAPPERS * VLCI_WRAPPER_SIZE

    .section .note.GNU-stack, "", @progbits
