#!/usr/bin/env python3
"""Starts a server and runs responses_node.mjs, the official OpenAI client for Node (Responses), against it."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import sdk

sdk.node("responses_node.mjs")
