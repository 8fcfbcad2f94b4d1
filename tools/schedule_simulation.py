# SPDX-License-Identifier: Apache-2.0
"""One GPU that executes kernels of a decoding step: what tools/schedule_model.py asks.

Times are microseconds, KB 1,000 bytes. A block is a generator: it yields what it waits for, a function that gets
another one to call when the block goes on.
"""
import collections
import functools
import heapq
import itertools
import operator
import re
import statistics


POSITIVE = re.compile(r"(?=.*[1-9])\d+(\.\d+)?")
# The steps of a block, and how many numbers each may have.
STEPS = {"run": [1], "load": [1], "ask": [1], "stream": [2], "walk": [3], "release": [0], "wait": [0], "meet": [0],
         "read": [1], "need": [0, 1], "join": [0]}


class Failure(Exception):
    """One line that says what is wrong with the data."""


def parsed(text):
    """[(word, numbers)] of a block's steps."""
    steps = []
    for step in re.split(r",\s*", text):
        word, *numbers = step.split() or [""]
        if word not in STEPS or len(numbers) not in STEPS[word] or not all(POSITIVE.fullmatch(n) for n in numbers):
            raise Failure(f"no step \"{step}\"; --help lists them, with numbers above 0")
        steps.append((word, [float(n) for n in numbers]))
    if sum(word == "wait" for word, _ in steps) != 1 or sum(word == "release" for word, _ in steps) > 1:
        raise Failure(f"\"{text}\": a block waits once, and lets the next kernel begin at most once")
    return steps


class Memory:
    """Requests share the rate by their bytes, so they are served in the order in which they came, and those of one
    moment together. Each has its bytes when `served` has grown by 1 since."""

    def __init__(self, processors, rate, engine):
        self.rate, self.engine = rate, engine  # KB/us: in all, and of a multiprocessor's copy engine
        self.busy = [0.0] * processors  # until when a copy engine is
        self.served = self.now = self.pending = 0.0  # pending: KB of the requests that are not served yet
        self.last = [0.0] * processors  # `served` when all that a multiprocessor has requested will have come
        self.queue, self.order, self.requests = [], itertools.count(), 0

    def speed(self):
        return self.rate / self.pending if self.requests else 1e3

    def advance(self, now):
        self.served += (now - self.now) * self.speed()
        self.now = now

    def request(self, now, processor, kb, then):
        self.advance(now)
        self.requests += 1
        self.pending += kb
        self.last[processor] = self.served + 1
        heapq.heappush(self.queue, (self.served + 1, next(self.order), kb, then))
        self.busy[processor] = max(self.busy[processor], now) + kb / self.engine
        return self.busy[processor]

    def load(self, now, processor, then):
        """What is in the second-level cache comes behind all that the multiprocessor has requested before."""
        self.advance(now)
        heapq.heappush(self.queue, (max(self.served, self.last[processor]), next(self.order), 0, then))

    def next_time(self):
        return self.now + max(self.queue[0][0] - self.served, 0.0) / self.speed() if self.queue else float("inf")

    def serve(self):
        self.advance(self.next_time())
        _, _, kb, then = heapq.heappop(self.queue)
        self.requests -= kb > 0
        self.pending -= kb
        return then


class Processor:
    """The room of one multiprocessor."""

    def __init__(self, gpu):
        self.quarters = [gpu["quarter_registers"]] * 4
        self.shared, self.threads, self.blocks = gpu["shared"], gpu["threads"], gpu["blocks"]
        self.running = 0  # warps that execute

    def needs(self, kernel):
        """Registers of each quarter: warps go to the quarters in turn, the odd ones where most is free."""
        each, warps = 32 * ((kernel["registers"] + 7) // 8 * 8), kernel["threads"] // 32
        needs = [warps // 4 * each] * 4
        if warps % 4 != 0:
            for q in sorted(range(4), key=lambda q: -self.quarters[q])[:warps % 4]:
                needs[q] += each
        return needs

    def fits(self, kernel):
        return (self.shared >= kernel["shared"] and self.threads >= kernel["threads"] and self.blocks > 0
                and all(map(operator.ge, self.quarters, self.needs(kernel))))

    def take(self, kernel):
        """Returns what gives the room back."""
        needs = self.needs(kernel)

        def change(sign):
            self.quarters = [free + sign * need for free, need in zip(self.quarters, needs)]
            self.shared += sign * kernel["shared"]
            self.threads += sign * kernel["threads"]
            self.blocks += sign
        change(-1)
        return lambda: change(1)


class Launch:
    """A kernel of a layer, on its way."""

    def __init__(self, name, kernel, layer):
        self.name, self.kernel, self.layer, self.before, self.after = name, kernel, layer, None, None
        self.todo = []
        for group in kernel["block"]:
            self.todo += [parsed(group["steps"])] * group["count"]
        self.placed = self.released = self.ended = 0
        self.complete, self.waiting, self.moments = None, [], []
        self.meetings = collections.defaultdict(list)  # of all blocks: what goes on when the last one is there

    @functools.cached_property
    def start(self):
        """The median return of the wait; of a launch that has ended."""
        return statistics.median(m["waited"] for m in self.moments)


class Simulation:
    def __init__(self, gpu, parameters, layers):
        """layers: lists of (name, kernel)."""
        self.p, self.now, self.events, self.order = parameters, 0.0, [], itertools.count()
        self.memory = Memory(gpu["processors"], self.p["memory"], self.p["engine"])
        self.processors = [Processor(gpu) for _ in range(gpu["processors"])]
        ends = list(itertools.accumulate(gpu["groups"]))
        self.groups = [range(end - size, end) for end, size in zip(ends, gpu["groups"])]
        self.launches = [Launch(*kernel, i) for i, layer in enumerate(layers) for kernel in layer]
        for before, after in zip(self.launches, self.launches[1:]):
            before.after, after.before = after, before
        self.head = self.launches[0]  # whose blocks are placed
        self.spread = itertools.cycle([i * 0.618034 % 1.0 for i in range(1, 90)])  # evenly over 0 to 1

    def run(self):
        self.place()
        while self.events or self.memory.queue:
            if not self.events or self.memory.next_time() <= self.events[0][0]:
                then = self.memory.serve()
                self.now = self.memory.now
            else:
                self.now, _, then = heapq.heappop(self.events)
            then()
        for launch in self.launches:
            if launch.complete is None:
                raise Failure(f"{launch.name}: a block fits no multiprocessor, or waits for blocks without room")
        return self.launches

    def at(self, time, then):
        heapq.heappush(self.events, (time, next(self.order), then))

    # ---- placing blocks

    def place(self, freed=None):
        """As many blocks of the launch at the head as there is room for. Of the multiprocessors with room the one with
        the fewest threads gets a block; the blocks of a cluster are within a group."""
        launch, kernel = self.head, self.head.kernel
        size = kernel.get("cluster", 1)
        alone = [[freed]] if freed is not None else [range(len(self.processors))]
        for group in self.groups if size > 1 else alone:
            fitting = [i for i in group if self.processors[i].fits(kernel)] if launch.placed < len(launch.todo) else []
            while fitting and launch.placed < len(launch.todo):
                taken = self.take(kernel, size, fitting)
                if len(taken) < size:
                    for _, give_back in taken:
                        give_back()
                    break
                for processor, give_back in taken:
                    self.start(launch, launch.todo[launch.placed], processor, give_back)
                    launch.placed += 1

    def take(self, kernel, size, fitting):
        """[(multiprocessor, what frees its room)] of as many blocks as fit, at most `size`."""
        taken = []
        while fitting and len(taken) < size:
            best = max(fitting, key=lambda i: self.processors[i].threads)
            taken.append((best, self.processors[best].take(kernel)))
            if not self.processors[best].fits(kernel):
                fitting.remove(best)
        return taken

    def start(self, launch, steps, processor, give_back):
        moments = {}
        launch.moments.append(moments)
        block = self.block(launch, steps, processor, moments)

        def leave():
            give_back()
            self.place(processor)

        def resume():
            wait_for = next(block, None)
            if wait_for is not None:
                return wait_for(resume)
            self.at(self.now + self.p["exit"], leave)
            launch.ended += 1
            if launch.ended == len(launch.todo):
                self.complete(launch)
        self.at(self.now + self.p["place"], resume)

    def release(self, launch):
        launch.released += 1
        if launch.released == len(launch.todo) and launch.after is not None:
            def begin():
                self.head = launch.after
                self.place()
            self.at(self.now + self.p["launch"], begin)

    def complete(self, launch):
        launch.complete = self.now
        for resume in launch.after.waiting if launch.after is not None else []:
            self.at(self.now + self.p["wait"], resume)

    # ---- the life of a block

    def pause(self, us):
        return lambda resume: self.at(self.now + us, resume)

    def ask(self, processor, kb):
        """Requests KB; returns what waits for them."""
        state = {"arrived": False, "resume": None}

        def arrived():
            state["arrived"] = True
            if state["resume"] is not None:
                state["resume"]()

        def wait(resume):
            if state["arrived"]:
                self.at(self.now, resume)
            else:
                state["resume"] = resume
        copied = self.memory.request(self.now, processor, kb,
                                     lambda: self.at(max(self.now, copied) + self.p["latency"], arrived))
        return wait

    def load(self, processor, latency):
        return lambda resume: self.memory.load(self.now, processor, lambda: self.at(self.now + latency, resume))

    def meet(self, meeting, count):
        def wait(resume):
            meeting.append(resume)
            if len(meeting) == count:
                for other in meeting:
                    self.at(self.now + self.p["meet"], other)
        return wait

    def execute(self, kernel, processor, count):
        """Instructions of each warp; a quarter issues one a cycle, a warp one in so many cycles."""
        warps = kernel["threads"] // 32
        processor.running += warps
        yield self.pause(count * max(self.p["cycles"], processor.running / 4) / self.p["clock"])
        processor.running -= warps

    def stream(self, index, asked, kb, window, count=None):
        """Requests in halves of the window; with `count`, so many instructions for each half that has come."""
        while kb > 0 or (count is not None and asked):
            while kb > 0 and len(asked) < 2:
                asked.append(self.ask(index, min(window / 2, kb)))
                kb -= window / 2
            if kb > 0 or count is not None:
                yield asked.popleft()
            if count is not None:
                yield count

    def block(self, launch, steps, index, moments):
        p, kernel, processor = self.p, launch.kernel, self.processors[index]
        asked, released, meetings = collections.deque(), False, itertools.count()
        note = lambda moment: moments.setdefault(moment, self.now)
        note("begun")
        for word, numbers in steps:
            if word == "run":
                yield from self.execute(kernel, processor, *numbers)
            elif word == "load":
                for _ in range(int(numbers[0])):
                    yield self.load(index, p["load"])
            elif word == "ask":
                asked.append(self.ask(index, *numbers))
                note("asked")
            elif word in ("stream", "walk"):
                note("asked")
                for one in self.stream(index, asked, *numbers):
                    if callable(one):
                        yield one
                    else:
                        yield from self.execute(kernel, processor, one)
            elif word == "release":
                released = True
                self.release(launch)
            elif word == "wait":
                before = launch.before
                if before is not None and before.complete is None:
                    yield launch.waiting.append
                elif before is not None and self.now < before.complete + p["wait"]:
                    yield self.pause(before.complete + p["wait"] - self.now)
                note("waited")
            elif word == "meet":
                yield self.meet(launch.meetings[next(meetings)], len(launch.todo))
            elif word == "read":
                yield self.load(index, p["read"] + p["spread"] * next(self.spread) + numbers[0] / p["row"])
                note("read")
            elif word == "need":
                while len(asked) > sum(numbers):
                    yield asked.popleft()
                note("arrived")
            elif word == "join":
                moments["multiplied"] = self.now
                yield self.pause(p["join"])
        note("ended")
        if not released:
            self.release(launch)
