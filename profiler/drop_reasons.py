"""Why something is not, or not fully, in a trace: codes, whose values a `Drop` has as a note."""

from __future__ import annotations

from profiler.notes import NoteCode

__all__ = ["DropReason"]


class DropReason(NoteCode):
    """What happened; in `(…)` the values beside the code."""

    # Reading a file
    ERROR = "error"  # (error: what was raised)
    CUT_OR_DAMAGED = "cut_or_damaged"  # (at, size)
    CUT_SHORT = "cut_short"  # (at, size): between two packets
    LARGER_THAN_RECORDED = "larger_than_recorded"  # (size, recorded)
    COPY_DIFFERS = "copy_differs"  # (size, recorded)
    GZIP_CUT = "gzip_cut"  # (error, unpacked)
    NOT_THERE = "not_there"  # (file)
    CALLS_NOT_THERE = "calls_not_there"  # (calls: numbers)
    CALLS_TWICE = "calls_twice"
    OMITTED = "omitted"  # (what): on purpose
    # Events of a file
    CLOCK_UNRELATED_IN_FILE = "clock_unrelated_in_file"
    NO_TIME = "no_time"
    NO_SEQUENCE = "no_sequence"
    STATE_MISSING = "state_missing"
    NO_TRACK = "no_track"
    NO_COUNTER = "no_counter"
    UNKNOWN_TYPE = "unknown_type"
    NOT_NESTED = "not_nested"
    TOO_DEEP = "too_deep"
    DAMAGED = "damaged"
    BAD_ARGUMENTS = "bad_arguments"
    BAD_DESCRIPTORS = "bad_descriptors"
    BAD_SNAPSHOTS = "bad_snapshots"
    BAD_COMPRESSED = "bad_compressed"
    NO_BEGIN = "no_begin"
    NO_END = "no_end"
    # A run's end
    NOT_ENDED = "not_ended"
    ENDED_WITH = "ended_with"  # (failure)
    HOST_NOT_WRITTEN = "host_not_written"
    KILLED_BEFORE_READ = "killed_before_read"
    CALL_NOT_RETURNED = "call_not_returned"
    STEP_NOT_RETURNED = "step_not_returned"  # (step)
    # Operators that were not recorded
    NOT_RECORDED = "not_recorded"
    PROFILER_FAILED = "profiler_failed"  # (error)
    OPERATORS_UNREADABLE = "operators_unreadable"  # (error)
    LAYERS_UNREADABLE = "layers_unreadable"  # (error)
    PROFILE_FULL = "profile_full"
    NO_SESSION_RUN = "no_session_run"
    SESSION_NOT_RENEWED = "session_not_renewed"  # (error)
    RUNS_MIXED = "runs_mixed"
    SIZE_REACHED = "size_reached"  # (size, file: the first without)
    PROFILER_IN_USE = "profiler_in_use"
    BUFFERS_FULL = "buffers_full"
    OPERATORS_NOT_ENDED = "operators_not_ended"
    NO_SESSION_EVENTS = "no_session_events"
    SESSION_UNREADABLE = "session_unreadable"
    SESSION_NOT_CUT = "session_not_cut"  # (error)
    CLOSED_ON_OTHER_THREAD = "closed_on_other_thread"
    THREAD_ENDED = "thread_ended"
    REPORTS_TOO_LONG = "reports_too_long"
    # Imports
    NEVER_RAN = "never_ran"  # without a time, or of a negative duration
    NO_COMMAND = "no_command"
    COUNTERS_UNDOCUMENTED = "counters_undocumented"
    ARGUMENTS_UNKNOWN = "arguments_unknown"
    FLOWS_BETWEEN_CALLS = "flows_between_calls"
    AGGREGATE_DIFFERS = "aggregate_differs"  # (whole, parts, what, files)
    LAYERS_DIFFER = "layers_differ"
    CLOCK_RESTARTS = "clock_restarts"  # (device)
    CLOCK_UNALIGNED = "clock_unaligned"  # (device, reference, how: one of the next)
    BY_SHARED_CALL = "by_shared_call"
    AT_RUN_START = "at_run_start"
    BY_ORDER = "by_order"
    BY_ORDER_WITHIN = "by_order_within"  # (uncertainty_ns)
    NO_PIPELINE_NAMED = "no_pipeline_named"
    PIPELINE_GUESSED = "pipeline_guessed"  # (pipeline, steps)
    PIPELINE_GUESSED_OF = "pipeline_guessed_of"  # (pipeline, steps, others)
    ORDER_UNKNOWN = "order_unknown"
    LAUNCH_TIMES = "launch_times"  # (provider)
    KERNELS_BY_END = "kernels_by_end"
    KERNELS_OF_NO_RUN = "kernels_of_no_run"
    ENTRIES_CUT = "entries_cut"  # what is whole was read
    LAID_END_TO_END = "laid_end_to_end"  # averages, in the order of execution
    TIMELINES_APART = "timelines_apart"  # recorded one by one, each with a clock of its own
    LAYERS_UNLIKE_TOTAL = "layers_unlike_total"  # (layers_ns, total_ns)
    SHARES_OF_CYCLES = "shares_of_cycles"
    EXECUTIONS_IN_ORDER = "executions_in_order"  # without a clock
    UNITS_ONLY = "units_only"  # (nodes, used): the latter notes UNIT_USED
    UNIT_USED = "unit_used"  # (name, share): of the execution's time
    ONE_COLUMN = "one_column"  # (measurements): of a table of measurements
    MEDIAN_LATENCY = "median_latency"
    STEPS_UNKNOWN = "steps_unknown"
    EVERY_NTH = "every_nth"  # (rate): requests that were recorded
    RATE_UNTOLD = "rate_untold"
    REQUESTS_INCOMPLETE = "requests_incomplete"  # (requests: the first of them)
    REQUESTS_NOT_COMPUTED = "requests_not_computed"  # (requests: the first of them)
    REQUESTS_IN_ORDER = "requests_in_order"  # without a clock
    STAGES_OVERLAP = "stages_overlap"  # a request is shorter than its stages together
    NO_STAGE_TIMES = "no_stage_times"  # of a request
    WITHOUT_OPERATIONS = "without_operations"  # times of stages alone
    BEGIN_BY_NAME = "begin_by_name"  # (within_ns)
    COUNTERS_OF_ANOTHER_RUN = "counters_of_another_run"
    TOLD_IN_ANOTHER_FORM = "told_in_another_form"
    NOT_LABELLED = "not_labelled"  # (found: notes; advice: a note)
    FILES_FOUND = "files_found"  # (files)
    CALLS_IN_FILE = "calls_in_file"  # (calls)
    FILES_SKIPPED = "files_skipped"  # (skipped)
    FILES_MISSING = "files_missing"  # (numbers)
    MORE_FILES_MISSING = "more_files_missing"  # (numbers: the first; more)
    PERHAPS_AGGREGATE = "perhaps_aggregate"
    PIPELINE_MAKES = "pipeline_makes"  # (pipeline, steps, calls)
    RUN_MADE = "run_made"  # (run, calls)
    OTHER_NUMBERS = "other_numbers"
    FITTING = "fitting"  # (options)
    CHECK_OPTIONS = "check_options"
    COPY_OR_DESCRIBE = "copy_or_describe"
    NOTHING_PROFILED = "nothing_profiled"
    SKIP_EARLIER = "skip_earlier"  # (files)
    COPY_ALL = "copy_all"
    RANKS_NOT_GIVEN = "ranks_not_given"  # (given, size)
    RANK_UNALIGNED = "rank_unaligned"  # (rank, reference)
