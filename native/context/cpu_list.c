#include "context/cpu_list.h"

static char *put_number(char *at, int number) {
    if (number >= 10) at = put_number(at, number / 10);
    *at = (char)('0' + number % 10);
    return at + 1;
}

size_t vlci_cpu_list_print(const cpu_set_t *cpus, char *out, size_t size) {
    static const size_t longest = sizeof ",1023-1023";
    char *at = out;
    for (int cpu = 0; cpu < CPU_SETSIZE && (size_t)(at - out) + longest <= size; cpu++) {
        if (!CPU_ISSET(cpu, cpus)) continue;
        int last = cpu;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus)) last++;
        if (at > out) *at++ = ',';
        at = put_number(at, cpu);
        if (last > cpu) {
            *at++ = '-';
            at = put_number(at, last);
        }
        cpu = last;
    }
    *at = 0;
    return (size_t)(at - out);
}

/* The number at *at, at most CPU_SETSIZE; false: there is none. */
static bool get_number(const char **at, unsigned *number) {
    const char *first = *at;
    for (*number = 0; **at >= '0' && **at <= '9'; (*at)++) {
        *number = *number * 10 + (unsigned)(**at - '0');
        if (*number > CPU_SETSIZE) *number = CPU_SETSIZE;
    }
    return *at > first;
}

bool vlci_cpu_list_parse(const char *list, cpu_set_t *cpus) {
    CPU_ZERO(cpus);
    for (;; list++) {
        unsigned first, last;
        if (!get_number(&list, &first)) return false;
        last = first;
        if (*list == '-') {
            list++;
            if (!get_number(&list, &last) || last < first) return false;
        }
        for (; first <= last && first < CPU_SETSIZE; first++) CPU_SET(first, cpus);
        if (!*list || *list == '\n') return CPU_COUNT(cpus) > 0;
        if (*list != ',') return false;
    }
}
