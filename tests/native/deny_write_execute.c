/* No memory is ever made executable after it could be written: works where the kernel refuses that. */
#include <errno.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "contexts.h"

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

int main(void) {
    if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0L, 0L, 0L) != 0) SKIP("no-mdwe", strerror(errno));
    REQUIRE(mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                MAP_FAILED,
            "the kernel grants what it should refuse");
    for (int round = 0; round < 3; round++) {
        vlc_context *context = context_new("a");
        CHECK_EQUAL(call_named(context, load(context, FIXTURE("cxx_probe"), RTLD_NOW), "cxx_catch", 10), 19);
        CHECK_EQUAL(call_named(context, load(context, FIXTURE("tls_descriptor"), RTLD_NOW), "tls_probe", 1),
                    0);
        CHECK_EQUAL(call_named(context, load(context, FIXTURE("lazy"), RTLD_LAZY), "lazy_fine", 1), 8);
        CHECK_EQUAL(
            call_named(context, load(context, FIXTURE("relocations_gnu"), RTLD_NOW), "relocations", 0), 0);
        context_close(context);
    }
    return check_result();
}
