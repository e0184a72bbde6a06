/* ctl_admin.c: `inferctl admin OBJECT ACTION ...`: dispatch of the administration commands. */
#include "cmd/ctl.h"

static const struct {
    const char *object, *action, *arguments, *help;
    int (*run)(struct ctl *c, int argc, char **argv);
} actions[] = {
    { "audit", "verify", "[--keys FILE] [--at LINES:MAC] FILE...",
        "verify audit logs, the oldest file first", ctl_audit_verify },
    { "audit", "list", "[--from TIME] [--to TIME] [--key ID] ...",
        "list lines of the audit log of the server, the newest first; also --tenant, --model, "
        "--action, --status, --limit",
        ctl_audit_list },
    { "api-keys", "list", "", "list the API keys of the server", ctl_api_keys },
    { "api-keys", "show", "ID", "print an API key without its secret", ctl_api_keys },
    { "api-keys", "create", "--name NAME ...", "create an API key and print its secret once",
        ctl_api_keys },
    { "api-keys", "replace", "ID --name NAME ...", "replace all attributes of an API key",
        ctl_api_keys },
    { "api-keys", "delete", "ID", "revoke an API key", ctl_api_keys },
    { "limits", "list", "", "list the limits of tenants and models, and the default ones of a key",
        ctl_limits },
    { "limits", "show", "default|tenant/NAME|model/NAME", "print limits and what is used of them",
        ctl_limits },
    { "limits", "put", "default|tenant/NAME|model/NAME LIMIT=N,...", "replace limits and prices",
        ctl_limits },
    { "limits", "delete", "default|tenant/NAME|model/NAME", "remove limits", ctl_limits },
    { "tenants", "list", "", "list the tenants of keys and limits", ctl_limits },
    { "tenants", "show", "NAME", "print the limits of a tenant", ctl_limits },
    { "tenants", "put", "NAME LIMIT=N,...", "replace the limits of a tenant", ctl_limits },
    { "tenants", "delete", "NAME", "remove the limits of a tenant", ctl_limits },
    { "rate-limit", "get", "", "print the default number of requests per minute of a key",
        ctl_limits },
    { "guardrails", "ls", "", "list the sets of guardrails", ctl_guardrails },
    { "guardrails", "get", "NAME", "print a set", ctl_guardrails },
    { "guardrails", "put", "NAME FILE", "create or replace a set by the JSON of a file",
        ctl_guardrails },
    { "guardrails", "rm", "NAME", "remove a set", ctl_guardrails },
    { "guardrails", "test", "TEXT", "print the hits in a text, and what is left of it",
        ctl_guardrails },
    { "roles", "list", "", "list the roles of the server", ctl_roles },
    { "roles", "show", "NAME", "print a role", ctl_roles },
    { "roles", "put", "NAME --scopes LIST ...",
        "create or replace a role; also --models, --limits, --claims, --description", ctl_roles },
    { "roles", "delete", "NAME", "remove a role; keys and tokens lose what it grants", ctl_roles },
    { "usage", "list", "", "list requests and tokens by hour, key and model", ctl_limits },
    { "rate-limit", "set", "N", "set it; 0 = no limit", ctl_limits },
};

static void print_help(void (*print)(const char *fmt, ...))
{
    print("usage: inferctl admin OBJECT ACTION ...\n\n");
    for (size_t i = 0; i < ARRAY_LEN(actions); i++)
        print("  %s %s %s\n      %s\n", actions[i].object, actions[i].action, actions[i].arguments,
            actions[i].help);
}

int ctl_admin(struct ctl *c, int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        print_help(ctl_printf);
        return EXIT_OK;
    }
    for (size_t i = 0; argc > 2 && i < ARRAY_LEN(actions); i++)
        if (!strcmp(argv[1], actions[i].object) && !strcmp(argv[2], actions[i].action))
            return actions[i].run(c, argc - 2, argv + 2);
    print_help(ctl_warn);
    return EXIT_USAGE;
}
