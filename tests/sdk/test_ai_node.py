#!/usr/bin/env python3
"""Starts a server and runs ai_node.mjs, the Vercel AI SDK, against it."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import sdk

sdk.node("ai_node.mjs")
