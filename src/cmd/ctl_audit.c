/* ctl_audit.c: `inferctl audit FILE...`: verifies the hash chain of audit logs. */
#include "cmd/ctl.h"
#include "audit/audit_file.h"

int ctl_audit(struct ctl *c, int argc, char **argv)
{
    struct ctl_args a = { .argc = argc, .argv = argv };
    char last[AUDIT_HEX + 1] = "";
    int64_t n_lines;
    int n = 0;
    struct err e;

    for (int i; (i = ctl_next(&a, NULL, 0)) != -1; n++) {
        if (i == -3)
            return EXIT_USAGE;
        if (audit_file_verify(a.value, last, &n_lines, &e))
            return ctl_fail("%s", e.msg);
        ctl_printf("%s: %lld lines, the chain is complete\n", a.value, (long long)n_lines);
    }
    return n ? EXIT_OK : ctl_usage("audit needs the path of an audit log");
}
