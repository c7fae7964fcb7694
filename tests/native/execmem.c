/* R4 as SELinux's execmem has it: no mapping may be writable and executable, and none may become executable later.
 * A filter ends the process at the first call that asks for one. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "contexts.h"

#define NUMBER offsetof(struct seccomp_data, nr)
#define PROTECTION (offsetof(struct seccomp_data, args) + 2 * sizeof(uint64_t)) /* of mmap and of mprotect */

static int forbid(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NUMBER),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pkey_mprotect, 3, 6),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, PROTECTION), /* mmap: not both */
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, PROT_WRITE | PROT_EXEC),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROT_WRITE | PROT_EXEC, 2, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, PROTECTION), /* mprotect: not executable */
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof code / sizeof *code, code };
    return prctl(PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* What the filter does to a process that asks. */
static void check_filter(int how) {
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        if (forbid()) _exit(2);
        if (how == 0)
            mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (how == 1)
            mprotect(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096,
                     PROT_READ | PROT_EXEC);
        _exit(0);
    }
    REQUIRE(waitpid(child, &status, 0) == child, "waitpid");
    if (how == 2)
        CHECK_EQUAL(status, 0);
    else
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "the filter lets %d through: %#x", how,
              status);
}

static void *add_one(void *argument) { return (char *)argument + 1; }

int main(void) {
    vlc_error error = VLC_ERROR_INIT;
    for (int how = 0; how < 3; how++) check_filter(how);
    REQUIRE(forbid() == 0, "no filter");
    for (int round = 0; round < 3; round++) {
        vlc_task *task = NULL;
        void *result = NULL;
        vlc_context *context = context_new("a");
        CHECK_EQUAL(call_named(context, load(context, FIXTURE("cxx_probe"), RTLD_NOW), "cxx_catch", 10), 19);
        CHECK_EQUAL(call_named(context, load(context, FIXTURE("tls_descriptor"), RTLD_NOW), "tls_probe", 1),
                    0);
        CHECK_EQUAL(call_named(context, load(context, FIXTURE("lazy"), RTLD_LAZY), "lazy_fine", 1), 8);
        CHECK_EQUAL(
            call_named(context, load(context, FIXTURE("relocations_gnu"), RTLD_NOW), "relocations", 0), 0);
        CHECK_EQUAL(vlc_submit(context, add_one, (void *)2, &task, &error), VLC_OK);
        CHECK_EQUAL(vlc_wait(task, &result, &error), VLC_OK);
        CHECK_EQUAL((long)result, 3);
        context_close(context);
    }
    return check_result();
}
