"""Interface of ik_llama.cpp in the terms of bench/compare_llama.py, which imports it as its library.

The structs and functions are those of the package ik-llama-cpp-python, which lacks some functions of the
library. The environment variable LLAMA_CPP_LIB_PATH is the directory of a build: the library of the package
is limited to AVX2."""
import ctypes
import os

if os.environ.get("LLAMA_CPP_LIB_PATH"):
    os.environ["IK_LLAMA_CPP_LIB_PATH"] = os.path.join(os.environ["LLAMA_CPP_LIB_PATH"], "libllama.so")

from ik_llama_cpp import _ctypes_api as api
from ik_llama_cpp._ctypes_api import (llama_backend_init, llama_batch_init, llama_context_default_params,  # noqa: F401
                                      llama_decode, llama_get_logits_ith, llama_init_from_model,
                                      llama_model_default_params, llama_model_get_vocab,
                                      llama_model_load_from_file, llama_token, llama_vocab_n_tokens)
from ik_llama_cpp._lib_loader import load_shared_library

LIBRARY = load_shared_library()  # the same handle as that of the package
HAS_UNIFIED_KV = False  # a field of the context parameters
llama_log_callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


def function(name, result, *arguments):
    f = getattr(LIBRARY, name)
    f.restype, f.argtypes = result, arguments
    return f


llama_log_set = function("llama_log_set", None, llama_log_callback, ctypes.c_void_p)
llama_print_system_info = function("llama_print_system_info", ctypes.c_char_p)
llama_memory_seq_rm = function("llama_kv_cache_seq_rm", ctypes.c_bool, ctypes.c_void_p, ctypes.c_int32,
                               ctypes.c_int32, ctypes.c_int32)
llama_memory_seq_cp = function("llama_kv_cache_seq_cp", None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32,
                               ctypes.c_int32, ctypes.c_int32)
llama_state_seq_save_file = function("llama_state_seq_save_file", ctypes.c_size_t, ctypes.c_void_p,
                                     ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t)
llama_state_seq_load_file = function("llama_state_seq_load_file", ctypes.c_size_t, ctypes.c_void_p,
                                     ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t,
                                     ctypes.POINTER(ctypes.c_size_t))
llama_perf_context = api.llama_get_timings


def llama_get_memory(context):
    """The KV cache belongs to the context."""
    return context
