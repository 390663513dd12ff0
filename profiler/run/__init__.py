"""A recorded run as tables: columns, loading, intervals, the time of each device."""
