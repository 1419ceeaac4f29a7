"""Many clients at once on a real server, for minutes: no text lost or mixed, memory flat. `make soak`.

Clients ask for random texts, some hang up, some read slowly, some send nonsense; half way the server is told to end and
a new one takes over. Every text that came whole is compared with the same text written alone.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from statistics import median

import httpx2
import openai
import psutil

from draftproof import Options, Speculator

PROMPTS = [
    "The for statement",
    "class Reader",
    "The if statement is",
    "def parse(self",
    "Note that the",
    "import os\n\n",
]


@dataclass
class Seen:
    """What clients met."""

    texts: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    first_s: list[float] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Server:
    """A server in a process of its own."""

    def __init__(self) -> None:
        asked = ["--target", "demo-target", "--draft", "demo-draft", "--port", "0", "--check-every", "10"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "draftproof", "serve", *asked, "--at-once", "16", "--max-queue", "64"],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        line = ""
        while "serving" not in line:
            line = self.process.stderr.readline()
            assert line, "the server did not start"
        found = re.search(r"http://\S+", line)
        assert found is not None
        self.url = found[0]
        self.memory = psutil.Process(self.process.pid)

    def end(self) -> str:
        """Tell it to end, and return what it said."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stderr is not None
        said = self.process.stderr.read()
        self.process.wait(60)
        return said


async def client(number: int, url: list[str], seen: Seen, until: float) -> None:
    """One client after another's manner."""
    rng = random.Random(number)
    while time.monotonic() < until:
        asked = {
            "model": "demo-target",
            "prompt": rng.choice(PROMPTS),
            "max_tokens": rng.choice([1, 8, 30, 60]),
            "temperature": rng.choice([0.0, 0.0, 0.8]),
            "seed": rng.randrange(5),
        }
        extra = {"speculative": rng.choice([False, True, "auto", {"k": 2}])}
        way = rng.choices(["whole", "slow", "hangs up", "nonsense"], [6, 1, 2, 1])[0]
        started, parts = time.monotonic(), []
        try:
            async with openai.AsyncOpenAI(base_url=f"{url[0]}/v1", api_key="x", max_retries=0, timeout=60) as ours:
                if way == "nonsense":
                    await ours.completions.create(**{**asked, "temperature": -1.0})
                stream = await ours.completions.create(**asked, extra_body=extra, stream=True)
                async for chunk in stream:
                    if not parts:
                        seen.first_s.append(time.monotonic() - started)
                    parts += [choice.text for choice in chunk.choices]
                    if way == "slow":
                        await asyncio.sleep(0.05)
                    if way == "hangs up" and len(parts) > 2:
                        break
                else:
                    given = [(k, v) for k, v in sorted(asked.items()) if k not in ("model", "prompt")]
                    key = str(asked["prompt"]), repr(given)
                    seen.texts.setdefault(key, set()).add("".join(parts))
                await stream.close()
            seen.ended[way] += 1
        except openai.BadRequestError:
            seen.ended["refused"] += 1
            if way != "nonsense":
                seen.wrong.append("a good request was refused")
        except openai.RateLimitError:
            seen.ended["told to come again"] += 1
            await asyncio.sleep(0.5)
        except (openai.APIError, httpx2.HTTPError) as error:
            seen.ended[f"cut off ({type(error).__name__})"] += 1
            await asyncio.sleep(0.5)


async def main() -> None:
    """Run it, and say what was met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=64)
    options = parser.parse_args()
    server, seen = Server(), Seen()
    url, said, memory = [server.url], [], []
    began = time.monotonic()
    until = began + 60 * options.minutes
    clients = [asyncio.ensure_future(client(i, url, seen, until)) for i in range(options.clients)]
    restarted = False
    while time.monotonic() < until:
        await asyncio.sleep(2)
        memory.append((restarted, time.monotonic() - began, server.memory.memory_info().rss / 2**20))
        if not restarted and time.monotonic() - began > 30 * options.minutes:
            other = await asyncio.to_thread(Server)
            url[0], old, server, restarted = other.url, server, other, True
            said.append(await asyncio.to_thread(old.end))
    await asyncio.gather(*clients)
    numbers = httpx2.get(f"{server.url}/metrics").text
    said.append(server.end())
    pair = Speculator("demo-target", "demo-draft", compile="on")
    for (prompt, asked), texts in seen.texts.items():
        given = dict(ast.literal_eval(asked))
        given["max_new_tokens"] = given.pop("max_tokens")
        alone = pair.generate(prompt, Options(**given), k=0).text
        seen.wrong += [f"{text!r} is not {alone!r}" for text in texts if text != alone]
    first = sorted(seen.first_s)
    told = ", ".join(f"{way} {count}" for way, count in seen.ended.most_common())
    print(f"{sum(seen.ended.values())} requests by {options.clients} clients in {options.minutes:g} minutes: {told}")
    print(f"{len(seen.texts)} different requests came whole; wrong: {len(seen.wrong)} {seen.wrong[:3]}")
    print(f"first token: median {median(first):.2f} s, p99 {first[int(0.99 * len(first))]:.2f} s")
    for half in (False, True):
        mine = [(at, size) for after, at, size in memory if after is half]
        if len(mine) > 8:
            early, late = median(s for _, s in mine[2:6]), median(s for _, s in mine[-4:])
            print(f"memory of server {1 + half}: {early:.0f} MiB at first, {late:.0f} MiB at the end")
    checked = re.findall(r"^draftproof:(checked|differences)_total\S* (\S+)", numbers, re.MULTILINE)
    heard = [one for one in said if one.strip()] or "nothing"
    print(f"written again by the server: {dict(checked)}; said by the servers: {heard}")
    sys.exit(bool(seen.wrong))


if __name__ == "__main__":
    asyncio.run(main())
