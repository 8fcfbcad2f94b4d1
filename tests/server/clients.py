#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified clients against a server that serves the demo model with a chat template that has tools:

    python3 -m venv /tmp/clients && /tmp/clients/bin/pip install openai anthropic prometheus-client
    switchyard serve --model-name demo --chat-template tests/data/templates/Qwen3.5-4B.jinja
    /tmp/clients/bin/python tests/server/clients.py http://127.0.0.1:8080

The demo model knows no tools, so `allow_regex` makes it write calls.
"""
import asyncio
import json
import sys
import time
import typing
import urllib.request

import anthropic
import openai
import pydantic
from prometheus_client.parser import text_string_to_metric_families

BASE = sys.argv[1]
ASK = [{"role": "user", "content": "Hello"}]
PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": SCHEMA}}
PING = {"type": "function", "function": {"name": "ping"}}
CALL = {"allow_regex": r"It rains\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n"
                       r"</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"}
WANTED = {"city": "Oslo", "days": 3}


def same(got, want, what):
    if got != want:
        raise SystemExit(f"{what}: {got!r} is not {want!r}")
    print("ok:", what)


def chat(c):
    same([m.id for m in c.models.list().data] + [c.models.retrieve("demo").id], ["demo", "demo"], "models")
    whole = c.chat.completions.create(model="demo", messages=ASK, max_tokens=12, seed=1, extra_body=PLAIN)
    text, usage = "", None
    for event in c.chat.completions.create(model="demo", messages=ASK, max_tokens=12, seed=1, stream=True,
                                           stream_options={"include_usage": True}, extra_body=PLAIN):
        usage = event.usage or usage
        text += event.choices[0].delta.content or "" if event.choices else ""
    same(text, whole.choices[0].message.content, f"a stream gives the same text: {text!r}")
    same(usage.completion_tokens, 12, "include_usage")
    r = c.chat.completions.create(model="demo", messages=ASK, max_tokens=3, logprobs=True, top_logprobs=2, n=2)
    same([len(t.top_logprobs) for x in r.choices for t in x.logprobs.content], [2] * 6, "logprobs of two choices")
    same(len(c.completions.create(model="demo", prompt=["Once", "Upon"], max_tokens=4).choices), 2, "completions")


def tools(c):
    r = c.chat.completions.create(model="demo", messages=ASK, tools=[WEATHER], extra_body=CALL)
    m = r.choices[0].message
    call = m.tool_calls[0]
    same((call.function.name, json.loads(call.function.arguments)), ("get_weather", WANTED), "a call of a tool")
    same((m.reasoning_content, r.choices[0].finish_reason), ("It rains", "tool_calls"), "reasoning apart from it")
    with c.chat.completions.stream(model="demo", messages=ASK, tools=[WEATHER], extra_body=CALL) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    same(json.loads(final.choices[0].message.tool_calls[0].function.arguments), WANTED, "a call, streamed")
    turn = [m.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "12 degrees"}]
    r = c.chat.completions.create(model="demo", messages=ASK + turn, tools=[WEATHER], max_tokens=8)
    same(r.usage.completion_tokens, 8, "an answer after the tool's result")
    r = c.chat.completions.create(model="demo", messages=ASK, tools=[PING, WEATHER], extra_body=PLAIN,
                                  tool_choice={"type": "function", "function": {"name": "ping"}})
    same(r.choices[0].message.tool_calls[0].function.name, "ping", "tool_choice with a name")


def formats(c):
    class Mood(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        mood: typing.Literal["glad", "sad"]

    r = c.chat.completions.parse(model="demo", messages=ASK, response_format=Mood, max_tokens=2000, extra_body=PLAIN)
    parsed = r.choices[0].message.parsed
    same(parsed.mood in ("glad", "sad"), True, f"response_format: {parsed!r}")
    try:
        schema = {"properties": {"tags": {"contains": {}}}}
        c.chat.completions.create(model="demo", messages=ASK, extra_body=PLAIN, response_format={
            "type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
        raise SystemExit("'contains' was not refused")
    except openai.BadRequestError as error:
        print("ok: refused:", error.body["message"])


def responses(c):
    r = c.responses.create(model="demo", input="Hello", max_output_tokens=10, extra_body=PLAIN)
    same((r.status, r.usage.output_tokens), ("incomplete", 10), f"responses: {r.output[0].content[0].text!r}")
    tool = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}
    with c.responses.stream(model="demo", input="Hello", tools=[tool], extra_body=CALL) as stream:
        numbers = [event.sequence_number for event in stream]
        final = stream.get_final_response()
    same(numbers, list(range(len(numbers))), "responses, streamed: events in order")
    same([o.type for o in final.output], ["reasoning", "function_call"], "responses, streamed: the items")
    same(json.loads(final.output[-1].arguments), WANTED, "responses, streamed: the call")


def refusals(c):
    for kind, fields in ((openai.BadRequestError, {"temperature": "hot"}), (openai.NotFoundError, {"model": "x"}),
                         (openai.BadRequestError, {"messages": [{"role": "boss", "content": ""}]})):
        try:
            c.chat.completions.create(**{"model": "demo", "messages": ASK, **fields})
            raise SystemExit(f"{fields} was not refused")
        except kind as error:
            print("ok: refused:", error.body["message"])
    try:
        c.embeddings.create(model="demo", input="x")
        raise SystemExit("embeddings were not refused")
    except openai.APIStatusError as error:
        same(error.status_code, 501, "embeddings are refused")


async def many():
    c = openai.AsyncOpenAI(base_url=BASE + "/v1", api_key="none", timeout=600)

    async def one(seed):
        text = ""
        async for event in await c.chat.completions.create(model="demo", messages=ASK, max_tokens=20, seed=seed,
                                                           stream=True, extra_body=PLAIN):
            text += event.choices[0].delta.content or ""
        return text

    begun = time.time()
    texts = await asyncio.gather(*[one(seed) for seed in range(64)])
    took = time.time() - begun
    same(await one(7), texts[7], f"64 streams at once in {took:.1f} s; alone, a seed gives the same text")
    print("ok:", len(set(texts)), "different texts")


def messages():
    c = anthropic.Anthropic(base_url=BASE, api_key="none")
    m = c.messages.create(model="demo", max_tokens=10, messages=ASK, system="Be brief", thinking={"type": "disabled"})
    same((m.stop_reason, m.usage.output_tokens, m.content[0].type), ("max_tokens", 10, "text"), "anthropic: a message")
    tool = {"name": "get_weather", "description": "Weather", "input_schema": SCHEMA}
    with c.messages.stream(model="demo", max_tokens=400, messages=ASK, tools=[tool], extra_body=CALL) as stream:
        for _ in stream:
            pass
        m = stream.get_final_message()
    same([b.type for b in m.content], ["thinking", "tool_use"], "anthropic, streamed: the blocks")
    same((m.content[1].input, m.stop_reason), (WANTED, "tool_use"), "anthropic, streamed: the call")
    count = c.messages.count_tokens(model="demo", messages=ASK).input_tokens
    same(count > 0, True, f"anthropic: count_tokens gives {count}")
    try:
        c.messages.create(model="demo", max_tokens=9, messages=[{"role": "user", "content": [{"type": "image"}]}])
        raise SystemExit("an image was not refused")
    except anthropic.BadRequestError as error:
        print("ok: refused:", error.body["error"]["message"])


def metrics():
    text = urllib.request.urlopen(BASE + "/metrics").read().decode()
    families = {f.name: f for f in text_string_to_metric_families(text)}
    finished = {s.labels["finished_reason"]: s.value for s in families["switchyard:request_success"].samples}
    print("ok:", len(families), "metrics; ended requests:", finished)


def main():
    print("openai", openai.__version__, "anthropic", anthropic.__version__)
    c = openai.OpenAI(base_url=BASE + "/v1", api_key="none", timeout=600)
    chat(c)
    tools(c)
    formats(c)
    responses(c)
    refusals(c)
    asyncio.run(many())
    messages()
    metrics()


main()
