#!/usr/bin/env python3
"""Starts a server and runs openai_tools.mjs, the official OpenAI client for Node, against it."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import sdk

sdk.node("openai_tools.mjs", config=sdk.script_model_config("qwen", "hermes_json", "think_tag"))
