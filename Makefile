# InferFlux: `make help` lists the targets; README.md says what they are for.
#
# One build directory per way of building, so that switching costs nothing:
#   build/        release, $(CC)             build/asan    address + undefined sanitizers
#   build/clang   release, clang             build/tsan    thread sanitizer
#   build/small   SMALL=1, address sanitizer (two-token pages, two-row batches, seven-byte reads)

CC      ?= gcc
ifeq ($(origin CC),default)
CC      := gcc
endif
VARIANT ?= release
PREFIX  ?= /usr/local
DESTDIR ?=
JOBS    ?= $(shell nproc)
VERSION := $(shell cat VERSION)
SHELL   := /bin/bash

include tools/variants.mk

WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
        -Wcast-qual -Wwrite-strings -Wundef -Wvla -Wformat=2 -Wno-format-nonliteral \
        -Wno-unused-parameter -Wno-missing-field-initializers
ifeq (,$(findstring clang,$(CC)))
# Wrong more often than right; clang's flow analysis stays an error.
WARN += -Wno-format-truncation -Wno-clobbered -Wno-maybe-uninitialized
endif

# Written by tools/deps, which installs missing packages first (apt) and says so.
NO_BUILD := help clean fmt lint
ifneq (,$(filter-out $(NO_BUILD),$(or $(MAKECMDGOALS),all)))
include build/pkg.mk
build/pkg.mk: tools/packages tools/deps
	@tools/deps build
endif

CPPFLAGS += -D_GNU_SOURCE -DINFERFLUX_VERSION='"$(VERSION)"' -Isrc -Iinclude -Itests $(V_CPPFLAGS)
CFLAGS   ?= $(V_OPT)
CFLAGS   += -std=gnu11 -ffp-contract=off -fno-math-errno -fPIC -fvisibility=hidden -pthread $(WARN) $(V_CFLAGS)
LDFLAGS  += -pthread $(V_CFLAGS) $(V_LDFLAGS)
LIBS     := $(PKG_LIBS) -lm

# Each instruction set is a translation unit with its own flags; nothing else may use them.
ISA_avx2   := -mavx2 -mfma -mf16c $(V_ISA_OPT)
ISA_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c $(V_ISA_OPT)
# AMX instructions are written in assembly, the code around them uses AVX-512. The definition of the
# AMX set (tests/kernel) is plain C, which runs on every processor.
ISA_amx    := $(ISA_avx512) -mavx512bf16
isa = $(if $(filter %/x86_amx_definition.c,$(1)),,$(if $(findstring x86_amx,$(1)),$(ISA_amx),$(if $(findstring x86_avx512,$(1)),$(ISA_avx512),$(if $(findstring x86_avx2,$(1))$(findstring x86_avxvnni,$(1)),$(ISA_avx2)))))

# src/testing is linked by inferctl, tests, benchmarks and tools, not by inferfluxd or the library.
LIB_SRC     := $(filter-out src/testing/% src/cmd/%_main.c src/cmd/ctl_%.c,$(wildcard src/*/*.c src/*/*/*.c))
TESTING_SRC := $(wildcard src/testing/*.c)
CTL_SRC     := $(wildcard src/cmd/ctl_*.c)
LIB_OBJ     := $(LIB_SRC:%.c=$(B)/%.o)
TESTING_OBJ := $(TESTING_SRC:%.c=$(B)/%.o)
CTL_OBJ     := $(CTL_SRC:%.c=$(B)/%.o)
LIB         := $(B)/libinferflux.a
TESTING_LIB := $(B)/libtesting.a
PROGRAMS := $(B)/inferfluxd $(B)/inferctl

.PHONY: all
all: $(PROGRAMS)

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CCACHE) $(CC) $(CPPFLAGS) $(PKG_CFLAGS) $(CFLAGS) $(call isa,$<) -MMD -MP -c $< -o $@

$(LIB): $(LIB_OBJ)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(TESTING_LIB): $(TESTING_OBJ)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(B)/inferfluxd: $(B)/src/cmd/inferfluxd_main.o $(LIB)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(B)/inferctl: $(B)/src/cmd/inferctl_main.o $(CTL_OBJ) $(TESTING_LIB) $(LIB)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS) $(CTL_LIBS)

# Tests, benchmarks and tools written in C: one source, one program, all linked with the library.
# Failures can only be injected where TESTING says so.
TEST_SRC  := $(filter-out tests/fuzz/% $(if $(findstring TESTING,$(V_CPPFLAGS)),,tests/fault/%), \
             $(wildcard tests/*/test_*.c))
TEST_BIN  := $(TEST_SRC:%.c=$(B)/%)
TOOL_SRC  := $(wildcard bench/*.c tools/*.c)
TOOL_BIN  := $(TOOL_SRC:%.c=$(B)/%)

$(TEST_BIN): $(B)/%: $(B)/%.o $(TESTING_LIB) $(LIB)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(TESTING_LIB) $(LIB) $(LIBS) -lcmocka

# Sets that need not run here, once more in a form that does: for tests and bench/kernels.
EVEX_OBJ := $(addprefix $(B)/tests/kernel/,x86_avxvnni_evex.o x86_avxvnni_evex_wide.o)
SOFT_OBJ := $(addprefix $(B)/tests/kernel/,x86_amx_soft.o x86_amx_float_soft.o x86_amx_attn_soft.o \
            x86_amx_definition.o) $(EVEX_OBJ)
$(filter $(B)/tests/kernel/% %/test_promise %/test_stories %/test_llama,$(TEST_BIN)): $(SOFT_OBJ)

$(B)/bench/kernels: $(EVEX_OBJ)
$(TOOL_BIN): $(B)/%: $(B)/%.o $(TESTING_LIB) $(LIB)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(TESTING_LIB) $(LIB) $(LIBS)

$(B)/tests/support/no_threads.so: tests/support/no_threads.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -shared -o $@ $<

.PHONY: tests tools
tests: $(TEST_BIN)
tools: $(TOOL_BIN)

include tools/targets.mk

-include $(LIB_OBJ:.o=.d) $(TESTING_OBJ:.o=.d) $(CTL_OBJ:.o=.d) $(SOFT_OBJ:.o=.d) $(TEST_BIN:=.d) $(TOOL_BIN:=.d) $(wildcard $(B)/src/cmd/*.d)
