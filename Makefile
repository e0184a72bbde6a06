# InferFlux: `make help` lists the targets; README.md and CONTRIBUTING.md describe them.
#
# Each build variant has its own directory, so a change of the variant does not cause a rebuild:
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
# Mostly false positives in gcc. clang's flow analysis covers them and is an error.
WARN += -Wno-format-truncation -Wno-clobbered -Wno-maybe-uninitialized
endif

# tools/deps writes build/pkg.mk. It first installs missing packages with apt and prints their names.
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

# The flags of an instruction set apply only to the source files of its kernels.
ISA_avx2   := -mavx2 -mfma -mf16c $(V_ISA_OPT)
ISA_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c $(V_ISA_OPT)
# AMX instructions are written in assembly; the code around them uses AVX-512. The reference of the
# AMX set (tests/kernel/x86_amx_definition.c) is plain C and runs on every CPU.
ISA_amx    := $(ISA_avx512) -mavx512bf16
# Kernels compute addresses from shapes that the callers have checked, and their large local arrays are
# written before they are read.
V_KERNEL_release := -fno-stack-protector \
                    $(if $(findstring clang,$(CC)),,-ftrivial-auto-var-init=uninitialized)
in_kernel = $(if $(filter src/kernel/%,$(1)),$(V_KERNEL_$(VARIANT)))
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

$(B)/%.o: %.c tools/variants.mk
	@mkdir -p $(@D)
	$(Q)$(CCACHE) $(CC) $(CPPFLAGS) $(PKG_CFLAGS) $(CFLAGS) $(call in_kernel,$<) $(call isa,$<) -MMD -MP -c $< -o $@

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

# Tests, benchmarks and tools in C: each source file is a program, linked with the library. Failures
# can be injected only in builds with -DTESTING, so tests/fault is not built in others.
TEST_SRC  := $(filter-out tests/fuzz/% $(if $(findstring TESTING,$(V_CPPFLAGS)),,tests/fault/%), \
             $(wildcard tests/*/test_*.c tests/unit/*/test_*.c tests/unit/*/*/test_*.c))
TEST_BIN  := $(TEST_SRC:%.c=$(B)/%)
TOOL_SRC  := $(wildcard bench/*.c tools/*.c)
TOOL_BIN  := $(TOOL_SRC:%.c=$(B)/%)

$(TEST_BIN): $(B)/%: $(B)/%.o $(TESTING_LIB) $(LIB)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(TESTING_LIB) $(LIB) $(LIBS) -lcmocka

# Kernel sets that the CPU may lack, compiled in a form that it can run (EVEX encoding, AMX in
# software), for tests and bench/kernels.
EVEX_OBJ := $(addprefix $(B)/tests/kernel/,x86_avxvnni_evex.o x86_avxvnni_evex_unpacked.o \
            x86_avxvnni_evex_low_bits.o)
SOFT_OBJ := $(addprefix $(B)/tests/kernel/,x86_amx_soft.o x86_amx_float_soft.o x86_amx_attn_soft.o \
            x86_amx_definition.o) $(EVEX_OBJ)
$(filter $(B)/tests/kernel/% %/test_schedule_invariance %/test_stories %/test_llama,$(TEST_BIN)): $(SOFT_OBJ)

$(B)/bench/kernels: $(EVEX_OBJ)
$(TOOL_BIN): $(B)/%: $(B)/%.o $(TESTING_LIB) $(LIB)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(TESTING_LIB) $(LIB) $(LIBS)

# Fuzz targets that replay their corpus and fixed mutations of it; tests/fuzz/run links libFuzzer.
FUZZ_BIN := $(patsubst %.c,$(B)/%,$(wildcard tests/fuzz/fuzz_*.c))
$(FUZZ_BIN): $(B)/%: $(B)/%.o $(B)/tests/fuzz/replay.o $(TESTING_LIB) $(LIB)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(TESTING_LIB) $(LIB) $(LIBS)

$(B)/tests/support/no_threads.so: tests/support/no_threads.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -shared -o $@ $<

.PHONY: tests tools fuzz-targets
tests: $(TEST_BIN)
tools: $(TOOL_BIN)
fuzz-targets: $(FUZZ_BIN)

include tools/targets.mk

-include $(LIB_OBJ:.o=.d) $(TESTING_OBJ:.o=.d) $(CTL_OBJ:.o=.d) $(SOFT_OBJ:.o=.d) $(TEST_BIN:=.d) $(TOOL_BIN:=.d) $(FUZZ_BIN:=.d) $(wildcard $(B)/src/cmd/*.d)
