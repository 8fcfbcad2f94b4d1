#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agent libraries against a server that serves the demo model with a chat template that has tools:

    python3 -m venv /tmp/agents && /tmp/agents/bin/pip install langchain-openai 'pydantic-ai-slim[openai]' openai-agents
    switchyard serve --model-name demo --chat-template tests/data/templates/Qwen3.5-4B.jinja
    /tmp/agents/bin/python tests/server/agent_clients.py http://127.0.0.1:8080

The demo model knows no tools: `allow_regex` or a required call makes it write one.
"""
import asyncio
import importlib.metadata
import sys
import typing

import pydantic

BASE = sys.argv[1] + "/v1"
PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}
# What the model must write first: a call whose argument is a city.
CALL = {**PLAIN, "allow_regex": r"<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n"
                                r"</tool_call>"}

WORD = {**PLAIN, "allow_regex": r"[A-Z][a-z]{3,9}\."}  # an answer that ends


class Mood(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    mood: typing.Literal["glad", "sad"]


def check(good, what):
    if not good:
        raise SystemExit(f"FAILED: {what}")
    print("ok:", what, flush=True)


def langchain():
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"Rain in {city}."

    def model(**extra):
        return ChatOpenAI(base_url=BASE, api_key="none", model="demo", max_tokens=2000, seed=1,
                          extra_body={**PLAIN, **extra})

    whole = model(ignore_eos=True).bind(max_tokens=12).invoke("Hello")
    streamed = "".join(c.text for c in model(ignore_eos=True).bind(max_tokens=12).stream("Hello"))
    check(streamed == whole.text and whole.usage_metadata["output_tokens"] == 12, f"langchain: {streamed!r}, streamed")
    call = model(**CALL).bind_tools([weather]).invoke("Hello")
    check(call.tool_calls[0]["args"] == {"city": "Oslo"}, f"langchain: a call {call.tool_calls[0]['args']}")
    result = ToolMessage(weather.invoke(call.tool_calls[0]["args"]), tool_call_id=call.tool_calls[0]["id"])
    said = [HumanMessage("Hello"), call, result]
    check(model().bind_tools([weather]).bind(max_tokens=8).invoke(said).usage_metadata["output_tokens"] <= 8,
          "langchain: an answer after the tool's result")
    mood = model().with_structured_output(Mood, method="json_schema").invoke("Hello")
    check(isinstance(mood, Mood), f"langchain: structured output {mood!r}")
    texts = model().bind(max_tokens=5).batch(["One", "Two", "Three"])
    check(len(texts) == 3, "langchain: a batch")


def pydantic_ai():
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("demo", provider=OpenAIProvider(base_url=BASE, api_key="none"))
    settings = {"max_tokens": 2000, "seed": 1, "extra_body": PLAIN}
    said = Agent(model, model_settings={**settings, "max_tokens": 9}).run_sync("Hello")
    check(0 < said.usage.output_tokens <= 9, f"pydantic-ai: {said.output!r}")
    native = Agent(model, output_type=NativeOutput(Mood), model_settings=settings).run_sync("Hello")
    check(isinstance(native.output, Mood), f"pydantic-ai: native output {native.output!r}")
    by_tool = Agent(model, output_type=Mood, model_settings=settings).run_sync("Hello")
    check(isinstance(by_tool.output, Mood), f"pydantic-ai: output by a required call {by_tool.output!r}")


def openai_agents():
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
    from agents import set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=BASE, api_key="none")
    asked = []

    @function_tool  # strict, so that the call fits its schema
    def weather(city: typing.Literal["Oslo"]) -> str:
        """The weather of a city."""
        asked.append(city)
        return f"Rain in {city}."

    async def run(kind):
        asked.clear()
        settings = ModelSettings(max_tokens=200, extra_body=PLAIN, tool_choice="required",
                                 parallel_tool_calls=False)
        agent = Agent(name="Asks", model=kind("demo", client), model_settings=settings, tools=[weather],
                      tool_use_behavior="stop_on_first_tool")
        result = await Runner.run(agent, "Hello", max_turns=2)
        called = asked == ["Oslo"] and result.final_output == "Rain in Oslo."
        check(called, f"openai-agents: {kind.__name__} calls a tool")
        plain = Agent(name="Tells", model=kind("demo", client),
                      model_settings=ModelSettings(max_tokens=40, extra_body=WORD))
        stream = Runner.run_streamed(plain, "Hello")
        events = [event.type async for event in stream.stream_events()]
        check("raw_response_event" in events and stream.final_output, f"openai-agents: {kind.__name__} streams "
              f"{stream.final_output!r}")

    async def both():
        await run(OpenAIChatCompletionsModel)
        await run(OpenAIResponsesModel)

    asyncio.run(both())


def main():
    tests = {"langchain-openai": langchain, "pydantic-ai-slim": pydantic_ai, "openai-agents": openai_agents}
    for name, test in tests.items():
        try:
            print(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            print(name, "is not installed")
            continue
        test()


main()
