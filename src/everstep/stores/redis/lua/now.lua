-- Returns the time. ARGV: none.
return clock()
