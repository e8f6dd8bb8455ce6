-- Returns a run's number in the order of admission, also of one that was erased. ARGV: run.
return number_of(ARGV[2])
