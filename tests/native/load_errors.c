/* Files that cannot be loaded: each refused in words, and nothing of them stays mapped. */
#include <elf.h>
#include <errno.h>
#include <sys/stat.h>

#include "contexts.h"

static char folder[] = "/tmp/vlcs-load-errors-XXXXXX";
static char path[sizeof folder + 64];

static const char *in_folder(const char *name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t size) {
    FILE *file = fopen(in_folder(name), "we");
    REQUIRE(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0, "%s cannot be written", path);
}

/* What the message must say besides the file's name. */
static void check_file(vlc_context *context, const char *name, const char *words) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_library *library = NULL;
    CHECK_REFUSED(vlc_load(context, in_folder(name), RTLD_NOW, &library, &error), error, VLC_LOAD_FAILED,
                  name);
    CHECK_WORDS(error.message, words);
    CHECK_WORDS(error.subject, name);
    CHECK(library == NULL, "a refused call wrote its output");
    CHECK(!is_mapped(name), "%s stays mapped", name);
}

int main(void) {
    static unsigned char bytes[1 << 20];
    vlc_error error = VLC_ERROR_INIT;
    vlc_library *library = NULL;
    REQUIRE(mkdtemp(folder) != NULL, "no temporary folder");
    FILE *good = fopen(FIXTURE("counter"), "re");
    REQUIRE(good != NULL, "%s cannot be read", FIXTURE("counter"));
    size_t size = fread(bytes, 1, sizeof bytes, good);
    fclose(good);

    vlc_context *context = context_new("a");
    load(context, FIXTURE("order_upper"), RTLD_NOW);
    CHECK_REFUSED(vlc_load(context, "libabsent-anywhere.so.3", RTLD_NOW, &library, &error), error,
                  VLC_LOAD_FAILED, "libabsent-anywhere.so.3");
    long mappings = mapping_count(); /* after the first search by name, which maps ld.so's cache for good */

    check_file(context, "libabsent.so", "No such file");
    write_file("libempty.so", bytes, 0);
    check_file(context, "libempty.so", "ELF");
    write_file("libtext.so", "INPUT(libc.so.6)\n", 17);
    check_file(context, "libtext.so", "ELF");
    static const size_t cuts[] = { 20, 63, 64, 400, 4096 };
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "libtruncated%zu.so", cuts[i]);
        write_file(name, bytes, cuts[i] < size ? cuts[i] : size / 2);
        check_file(context, name, "truncated");
    }
    Elf64_Ehdr *header = (Elf64_Ehdr *)bytes, saved = *header;
    header->e_machine = EM_RISCV;
    write_file("libforeign.so", bytes, size);
    check_file(context, "libforeign.so", "machine");
    *header = saved;
    header->e_ident[EI_CLASS] = ELFCLASS32;
    write_file("libnarrow.so", bytes, size);
    check_file(context, "libnarrow.so", "machine");
    *header = saved;
    header->e_type = ET_REL;
    write_file("libobject.so", bytes, size);
    check_file(context, "libobject.so", "shared");
    *header = saved;
    header->e_phoff = size + 100;
    write_file("libheaders.so", bytes, size);
    check_file(context, "libheaders.so", "truncated");
    *header = saved;

    REQUIRE(mkdir(in_folder("libfolder.so"), 0700) == 0, "no folder");
    check_file(context, "libfolder.so", "director");

    CHECK_REFUSED(vlc_load(context, FIXTURE("needs_absent"), RTLD_NOW, &library, &error), error,
                  VLC_LOAD_FAILED, "libabsent.so");
    CHECK_WORDS(error.message, "libneeds_absent.so");
    CHECK_REFUSED(vlc_load(context, FIXTURE("consumer"), RTLD_NOW, &library, &error), error, VLC_LOAD_FAILED,
                  "provided");
    CHECK_WORDS(error.message, "libconsumer.so");
    CHECK_REFUSED(vlc_load(context, FIXTURE("textrel"), RTLD_NOW, &library, &error), error, VLC_LOAD_FAILED,
                  "libtextrel.so");
    CHECK_WORDS(error.message, "-fPIC");
    void *address = NULL;
    CHECK_REFUSED(vlc_symbol(context, NULL, "no_such_function", &address, &error), error, VLC_LOAD_FAILED,
                  "no_such_function");
    CHECK(address == NULL && library == NULL, "a refused call wrote its output");

    if (!UNDER_SANITIZER && !under_valgrind()) CHECK_EQUAL(mapping_count(), mappings);
    CHECK(!is_mapped("libneeds_absent.so") && !is_mapped("libconsumer.so") && !is_mapped("libtextrel.so"),
          "a refused library stays mapped");
    CHECK_EQUAL(call_named(context, NULL, "order_above", 1), 2); /* what was there works on */
    context_close(context);

    char command[sizeof folder + 16];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_EQUAL(system(command), 0);
    return check_result();
}
