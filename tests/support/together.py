# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a module that mostly wait, several at the same time.

together.run(argv): argv[1:] names classes or tests of __main__; without a name all run. Ends the process.
"""
import concurrent.futures
import sys
import time
import unittest

AT_ONCE = 6


def tests_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test)
        else:
            yield test


def run_one(test):
    assert type(test).setUpClass.__func__ is unittest.TestCase.setUpClass.__func__, "nobody would call setUpClass"
    result, begin = unittest.TestResult(), time.monotonic()
    test(result)
    return test.id(), result, time.monotonic() - begin


def run(argv):
    module = sys.modules["__main__"]
    loader = unittest.defaultTestLoader
    tests = list(tests_of(loader.loadTestsFromNames(argv[1:], module) if argv[1:] else
                          loader.loadTestsFromModule(module)))
    begin, bad = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for name, result, seconds in pool.map(run_one, tests):
            well = result.wasSuccessful() and result.testsRun == 1
            bad += not well
            print(f"{'ok' if well else 'FAILED'} {seconds:.1f} s {name}", *(f"skipped: {why}" for _, why in result.skipped))
            for _, trace in result.errors + result.failures:
                print(trace)
    print(f"{len(tests)} tests in {time.monotonic() - begin:.1f} s, {bad} failed")
    sys.exit(bad != 0 or not tests)
