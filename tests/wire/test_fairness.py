#!/usr/bin/env python3
"""Scheduler fairness over HTTP: settings, changes at run time, counters, and unchanged outputs."""
import hashlib
import json
import os
import select
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, run

CHAT = "/v1/chat/completions"
FAIRNESS = "/v1/admin/fairness"
OFF = {"enable_preemption": False, "high_priority_threshold": 5, "max_timeslice_tokens": 0,
    "weights": {}}


def metrics(server):
    found = {}
    for line in server.get("/metrics")[2].decode().splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name.removeprefix("inferflux_")] = float(value)
    return found


def body(i, **more):
    return json.dumps({"model": "demo", "seed": i, "temperature": 1, "max_tokens": 24,
        "ignore_eos": True, "messages": [{"role": "user", "content": f"Tell me about {i}."}], **more})


def ask_all(server, bodies):
    answers = [None] * len(bodies)

    def one(i):
        answers[i] = json.loads(server.request("POST", CHAT, bodies[i])[2])["choices"]

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return answers


def test_settings_are_shown_and_can_be_changed():
    with Server() as s:
        equal(json.loads(s.get(FAIRNESS)[2]), OFF)
        status, _, text = s.request("PUT", FAIRNESS, '{"max_timeslice_tokens": 7}')
        equal((status, json.loads(text)), (200, {**OFF, "max_timeslice_tokens": 7}))
        s.request("PUT", FAIRNESS, '{"enable_preemption": true, "high_priority_threshold": -3}')
        equal(json.loads(s.get(FAIRNESS)[2]), {"enable_preemption": True,
            "high_priority_threshold": -3, "max_timeslice_tokens": 7, "weights": {}})
        for wrong in ("", "[]", "{", '{"max_timeslice_tokens": -1}', '{"enable_preemption": 1}',
                '{"high_priority_threshold": "5"}', '{"other": 1}',
                '{"max_timeslice_tokens": 1e30}'):
            equal(s.request("PUT", FAIRNESS, wrong)[0], 400)
        equal(json.loads(s.get(FAIRNESS)[2])["max_timeslice_tokens"], 7)


def test_only_administrators_may():
    with Server("--api-key", "user,boss:admin", ready=False) as s:
        for method in ("GET", "PUT"):
            text = "{}" if method == "PUT" else None
            equal(s.request(method, FAIRNESS, text)[0], 401)
            equal(s.request(method, FAIRNESS, text, Authorization="Bearer user")[0], 403)
            equal(s.request(method, FAIRNESS, text, Authorization="Bearer boss")[0], 200)


def test_the_server_starts_with_the_configured_settings():
    env = {"INFERFLUX_FAIRNESS_PREEMPT": "true", "INFERFLUX_FAIRNESS_HIGH_PRI": "3",
        "INFERFLUX_FAIRNESS_TIMESLICE": "9"}
    want = {"enable_preemption": True, "high_priority_threshold": 3, "max_timeslice_tokens": 9,
        "weights": {}}
    with Server(env=env) as s:
        equal(json.loads(s.get(FAIRNESS)[2]), want)
    others = {"INFERFLUX_FAIRNESS_ENABLE_PREEMPTION": "true",
        "INFERFLUX_FAIRNESS_PRIORITY_THRESHOLD": "3", "INFERFLUX_FAIRNESS_MAX_TIMESLICE": "9"}
    with Server(env=others) as s:
        equal(json.loads(s.get(FAIRNESS)[2]), want)


def test_time_slices_change_the_order_and_no_output():
    with Server("--parallel", "2") as s:
        bodies = [body(i, priority=i % 2) for i in range(6)]
        alone = [json.loads(s.request("POST", CHAT, b)[2])["choices"] for b in bodies]
        m, n = metrics(s), 1
        equal(m["fairness_yields_total"], 0)
        s.request("PUT", FAIRNESS, '{"max_timeslice_tokens": 3}')
        while not m["fairness_yields_total"] and n < 20:  # until three sequences have run together
            equal(ask_all(s, bodies), alone)
            m, n = metrics(s), n + 1
        assert m["fairness_yields_total"] > 0, m
        equal(m["fairness_resumes_total"], m["fairness_yields_total"])
        equal(m["fairness_queue_depth"], 0)
        equal(m['fairness_tokens_total{priority="0"}'], 3 * n * 24)
        equal(m['fairness_tokens_total{priority="1"}'], 3 * n * 24)


def test_a_high_priority_preempts():
    with Server("--parallel", "1") as s:
        s.request("PUT", FAIRNESS, '{"enable_preemption": true}')
        low = [body(i, max_tokens=300) for i in range(2)]
        done, m = [], metrics(s)
        for _ in range(20):  # until one has arrived during the time slice of another
            t = threading.Thread(target=lambda: done.append(ask_all(s, low)))
            t.start()
            while t.is_alive() and not m["fairness_preemptions_total"]:
                s.request("POST", CHAT, body(9, priority=7, max_tokens=2))
                m = metrics(s)
            t.join()
            if m["fairness_preemptions_total"]:
                break
        m = metrics(s)
        assert m["fairness_preemptions_total"] > 0, m
        equal(m["preemptions_total"], m["fairness_preemptions_total"])
        alone = [json.loads(s.request("POST", CHAT, b)[2])["choices"] for b in low]
        equal(done, [alone] * len(done))


def test_an_unreachable_deadline_is_rejected_at_once():
    with Server("--parallel", "1") as s:
        busy = [body(i, max_tokens=700) for i in range(8)]
        t = threading.Thread(target=lambda: ask_all(s, busy))
        t.start()
        refused = []
        while t.is_alive() and (len(refused) < 5 or min(refused) >= 0.055):
            began = time.monotonic()
            status, fields, text = s.request("POST", CHAT, body(9, max_tokens=300),
                x_request_timeout_ms="60")
            if status == 503:
                refused.append(time.monotonic() - began)
                assert int(fields["retry-after"]) >= 1, fields
                assert b"deadline" in text, text
        t.join()
        assert refused, "no request was rejected"
        assert min(refused) < 0.055, refused  # at once, not at the end of its 60 ms


def test_phases_are_measured():
    with Server() as s:
        for i in range(3):
            s.request("POST", CHAT, body(i))
        m = metrics(s)
        for name in ("prefill_duration_seconds", "decode_duration_seconds"):
            equal(m[f"{name}_count"], 3)
            assert m[f"{name}_sum"] > 0
        for name in ("step_prefill_seconds", "step_decode_seconds", "batch_size", "batch_tokens"):
            assert m[f"{name}_count"] >= 3, name
        equal(m["step_prefill_seconds_count"] + m["step_decode_seconds_count"],
            m["batch_size_count"])
        # Each prompt was the only one in its step.
        equal(m["batch_prefill_size_count"], m["step_prefill_seconds_count"])
        equal(m["batch_prefill_size_sum"], m["batch_prefill_size_count"])
        equal(m["batch_prefill_size_sum"] + m["batch_decode_size_sum"], m["batch_size_sum"])
        equal((m["queue_seconds_count"], m["turn_wait_seconds_count"]), (3, 3))
        equal(m["turn_wait_seconds_sum"], 0)  # no time slice was taken from a sequence
        for name in ("fixed_nanoseconds", "token_nanoseconds", "key_picoseconds"):
            assert f'step_cost_{name}{{model="demo"}}' in m, m
        assert m['step_cost_fixed_nanoseconds{model="demo"}'] > 0
        computed = m["prompt_tokens_total"] - m["cached_tokens_total"] + 3 * 23
        assert m["batch_tokens_sum"] >= computed, m["batch_tokens_sum"]


def id_of(key):
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def served_beside(server, keys, each):
    """Both keys send the same number of requests at once: returns how many responses each had
    when the first had all of its own."""
    done, lock = {k: 0 for k in keys}, threading.Lock()
    seen = []

    def one(key, i):
        status = server.request("POST", CHAT, body(i, max_tokens=16),
            Authorization="Bearer " + key)[0]
        equal(status, 200)
        with lock:
            done[key] += 1
            if done[key] == each and not seen:
                seen.append(dict(done))

    threads = [threading.Thread(target=one, args=(k, i)) for i in range(each) for k in keys]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return seen[0]


def first_of(server, more, less, most):
    """Returns the key that had all of its 16 responses when the other had at most `most`.
    Repeats if neither found the other waiting; with ineffective weights that never succeeds."""
    for _ in range(10):
        n = served_beside(server, (less, more), 16)
        if n[more] == 16 and n[less] <= most:
            return more
    return n


def test_a_key_of_higher_weight_is_served_more():
    keys = {"INFERFLUX_API_KEYS": "light, heavy:weight=4, boss:admin:weight=0.5"}
    with Server("--parallel", "2", env=keys, ready=False) as s:
        s.key = "boss"
        s.until_ready()
        weights = {id_of("light"): 1, id_of("heavy"): 4, id_of("boss"): 0.5}
        equal(json.loads(s.get(FAIRNESS)[2])["weights"], weights)
        equal(first_of(s, "heavy", "light", 9), "heavy")
        put = lambda w: s.request("PUT", FAIRNESS, json.dumps({"weights": w}))
        equal(put({id_of("light"): 8, id_of("heavy"): 1})[0], 200)
        equal(json.loads(s.get(FAIRNESS)[2])["weights"][id_of("light")], 8)
        equal(first_of(s, "light", "heavy", 8), "light")
        for wrong in ([], 1, {"nobody": 1}, {id_of("light"): 0}, {id_of("light"): "2"},
                {id_of("light"): 2, id_of("heavy"): 1e9}):
            equal(put(wrong)[0], 400, wrong)
        equal(json.loads(s.get(FAIRNESS)[2])["weights"][id_of("light")], 8)


def test_priority_of_one_key_does_not_delay_another():
    flood = body(1, max_tokens=200, priority=1000000)
    with Server("--parallel", "1", "--api-key", "a,b,c:priority=7", key="b") as s:
        done = []

        def one():
            status, fields, _ = s.request("POST", CHAT, flood, Authorization="Bearer a")
            done.append((status, fields.get("x-inferflux-priority")))

        threads = [threading.Thread(target=one) for _ in range(12)]
        for t in threads:
            t.start()
        while metrics(s)["requests_total"] < len(threads):
            pass
        status, fields, _ = s.request("POST", CHAT, body(2, max_tokens=2))
        n_before = len(done)
        equal((status, "x-inferflux-priority" in fields), (200, False))
        for t in threads:
            t.join()
        equal(done, [(200, "0")] * len(threads))
        assert n_before < 9, f"{n_before} of 12 requests of the other key were served first"
        for priority, shown in ((7, None), (8, "7"), (-5, None)):
            _, fields, _ = s.request("POST", CHAT, body(3, max_tokens=2, priority=priority),
                Authorization="Bearer c")
            equal(fields.get("x-inferflux-priority"), shown)


def n_readable(conns):
    return len(select.select(conns, [], [], 0)[0])


def delay_in_bodies(server, large, small):
    """Key a sends ten large bodies. When the server has them, key b sends a small one. Returns how many
    of the ten were served before it was sent, and how many more before its response arrived."""
    n_before = metrics(server)["http_requests_total"]
    conns = []
    for _ in range(10):
        c = server.connect()
        c.sendall(f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a\r\n"
            f"Content-Length: {len(large)}\r\n\r\n{large}".encode())
        conns.append(c)
    n_polls, m = 1, metrics(server)
    while m["http_requests_total"] < n_before + len(conns) + n_polls or \
            m["request_body_bytes"] < (len(conns) - n_readable(conns)) * len(large):
        n_polls, m = n_polls + 1, metrics(server)
    n_served = n_readable(conns)
    equal(server.request("POST", "/v1/completions", small)[0], 200)
    n_more = n_readable(conns) - n_served
    for c in conns:
        equal(c.recv(12), b"HTTP/1.1 200")
        c.close()
    while metrics(server)["request_memory_bytes"] > 1 << 20:
        pass  # the next round begins when the memory of these responses has been freed
    return n_served, n_more


def test_large_bodies_of_one_key_delay_another_by_one_body():
    # The memory of ten unread responses fits into the share of a key.
    large = json.dumps({"model": "demo", "content": "1" * 2_000_000})
    small = '{"model":"demo","prompt":"hi","max_tokens":1' + " " * 40_000 + "}"
    with Server("--api-key", "a,b", key="b") as s:
        # Other load may stop the client while more bodies are served. In the order of arrival, the small
        # body would be the last in each round.
        rounds = []
        for _ in range(6):
            n_served, n_more = delay_in_bodies(s, large, small)
            rounds.append((n_served, n_more))
            if n_served <= 6 and n_more <= 2:
                return
        raise AssertionError(f"bodies served before and during the small request: {rounds}")


def until_seen(server, bodies, condition):
    """Sends all requests at once, repeatedly, until the gauges met the condition meanwhile."""
    for _ in range(20):
        t = threading.Thread(target=ask_all, args=(server, bodies))
        t.start()
        is_seen = False
        while t.is_alive() and not is_seen:
            is_seen = condition(m := metrics(server))
        t.join()
        if is_seen:
            return
    raise AssertionError(m)


def test_gauges_count_running_and_waiting_requests():
    with Server("--parallel", "1") as s:
        slow = body(1, model="echo", script={"text": "word " * 100, "delay_ms": 50})
        # Script models spend most of the time waiting, and count as running.
        until_seen(s, [slow] * 3,
            lambda m: (m["scheduler_running"], m["scheduler_queue_depth"]) == (3, 0))
        three = [body(i, max_tokens=300) for i in range(3)]
        until_seen(s, three,
            lambda m: (m["scheduler_running"], m["scheduler_queue_depth"]) == (1, 2))
        s.request("PUT", FAIRNESS, '{"max_timeslice_tokens": 3}')
        until_seen(s, three,  # sequences preempted by their time slice have begun
            lambda m: (m["scheduler_running"], m["scheduler_queue_depth"],
                m["fairness_queue_depth"]) == (1, 0, 2))
        m = metrics(s)
        equal((m["scheduler_running"], m["scheduler_queue_depth"]), (0, 0))
        assert m["turn_wait_seconds_sum"] > 0


if __name__ == "__main__":
    run(globals())
