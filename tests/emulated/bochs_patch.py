#!/usr/bin/env python3
"""bochs_patch.py SOURCE: patches Bochs 3.0 so that Linux programs can use AMX tiles.

Additions: Linux enables tiles only if the processor supports XFD (Intel's manual volume 1, 13.14):
a CPUID bit, two model-specific registers with the disabled features and the cause of a fault, and
#NM for a tile instruction while tiles are disabled. Corrections: products of signed bytes, which
Bochs computes as unsigned; the upper half of VCVTNE2PS2BF16, which is read beyond the end of its
operand; and the saved state of tiles (whether they are in use, the number of saved rows, and the
order of the configuration), which a thread loses at a context switch."""
import os
import sys

TILES = "BX_XCR0_XTILEDATA_MASK"
REGISTERS = ("BX_MSR_IA32_XFD", "ia32_xfd"), ("BX_MSR_IA32_XFD_ERROR", "ia32_xfd_err")
MSR_DESCRIPTORS = "".join(f'msr_desc[{msr}] = new MSR_Descriptor("{msr}", BX_ISA_AMX);\n'
                    for msr, _ in REGISTERS)
MSR_READS = "".join(f"case {msr}: val64 = BX_CPU_THIS_PTR msr.{field}; break;\n"
               for msr, field in REGISTERS)
MSR_WRITES = "".join(f"""case {msr}:
  if (val_64 & ~Bit64u({TILES})) return false;
  BX_CPU_THIS_PTR msr.{field} = val_64;
  handleAvxModeChange();
  break;
""" for msr, field in REGISTERS)
IF_DISABLED = f"if (BX_CPU_THIS_PTR msr.ia32_xfd & {TILES})"
FAULT = f"""{IF_DISABLED} {{
  BX_CPU_THIS_PTR msr.ia32_xfd_err |= {TILES};
  exception(BX_NM_EXCEPTION, 0);
}}
"""
AFTER, BEFORE = range(2)
# file, texts in the order of their occurrence, whether to insert after or before the line of the
# last one, lines to insert
ADDITIONS = [
    ("cpu/cpu.h", ["ia32_xss;"], AFTER, "Bit64u ia32_xfd, ia32_xfd_err;\n"),
    ("cpu/init.cc", ["msr.ia32_xss = 0;"], AFTER,
     "BX_CPU_THIS_PTR msr.ia32_xfd = BX_CPU_THIS_PTR msr.ia32_xfd_err = 0;\n"),
    ("cpu/cpuid.cc", ["leaf->eax |= (1<<3);"], AFTER,
     "if (is_cpu_extension_supported(BX_ISA_AMX)) leaf->eax |= 1 << 4;\n"),
    ("cpu/cpuid.cc", ["leaf->ecx = (cpu->ia32_xss_suppmask"], AFTER,
     "if (subfunction == xcr0_t::BX_XCR0_XTILEDATA_BIT) leaf->ecx |= 1 << 2;\n"),
    ("cpu/msr.cc", ["msr_desc[BX_MSR_XSS] ="], BEFORE, MSR_DESCRIPTORS),
    ("cpu/msr.cc", ["::rdmsr(", "case BX_MSR_XSS:"], BEFORE, MSR_READS),
    ("cpu/msr.cc", ["::wrmsr(", "case BX_MSR_XSS:"], BEFORE, MSR_WRITES),
    ("cpu/proc_ctrl.cc", ["set_amx_ok();"], AFTER, f"{IF_DISABLED} clear_amx_ok();\n"),
    ("cpu/proc_ctrl.cc", ["::BxNoAMX(", "BX_ASSERT(0);"], BEFORE, FAULT),
]
# file, wrong text, correct text, number of occurrences
CORRECTIONS = [
    ("cpu/avx/avx512_bf16.cc", "to_bfloat16(op1.vmm32u(n))",
     "to_bfloat16(op1.vmm32u(n - DWORD_ELEMENTS(len)))", 1),
    ("cpu/xsave.cc", "tile_use_tracker == 0", "tile_use_tracker != 0", 1),
    ("cpu/xsave.cc", "row < BX_TILE_REGISTERS", "row < BX_TILE_MAX_ROWS", 2),
    ("cpu/xsave.cc", "vmm16u(8+n)    = BX_CPU_THIS_PTR amx->tilecfg[n].rows",
     "vmm16u(8+n)    = BX_CPU_THIS_PTR amx->tilecfg[n].bytes_per_row", 1),
    ("cpu/xsave.cc", "vmmubyte(48+n) = BX_CPU_THIS_PTR amx->tilecfg[n].bytes_per_row",
     "vmmubyte(48+n) = BX_CPU_THIS_PTR amx->tilecfg[n].rows", 1),
    ("cpu/avx/amx.cc", "Bit32s(xbyte[", "Bit32s((Bit8s)xbyte[", 8),
    ("cpu/avx/amx.cc", "Bit32s(ybyte[", "Bit32s((Bit8s)ybyte[", 8),
]


def rewrite(path, change):
    with open(path, encoding="latin-1") as f:
        text = f.read()
    with open(path, "w", encoding="latin-1") as f:
        f.write(change(text))


def add(text, words, where, lines):
    at = 0
    for word in words:
        at = text.index(word, at + 1)
    at = text.rfind("\n", 0, at) + 1 if where == BEFORE else text.index("\n", at) + 1
    return text[:at] + lines + text[at:]


def correct(text, wrong, right, times):
    if text.count(wrong) != times:
        sys.exit(f"{wrong} occurs {text.count(wrong)} times, not {times}: another version?")
    return text.replace(wrong, right)


source = sys.argv[1]
for name, words, where, lines in ADDITIONS:
    rewrite(os.path.join(source, name), lambda text: add(text, words, where, lines))
for name, *change in CORRECTIONS:
    rewrite(os.path.join(source, name), lambda text: correct(text, *change))
