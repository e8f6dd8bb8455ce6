-- Replaces the mark that keeps workers from an unfinished run, if that is still what was read; returns whether it did.
-- ARGV: run, the mark as it was and as it is to be ('=' before one), a row of the audit log.
local f = redis.call('HMGET', row_of(ARGV[2]), 'status', 'repair', 'signal', 'n')
local was, new = ARGV[3] ~= '' and string.sub(ARGV[3], 2), ARGV[4] ~= '' and string.sub(ARGV[4], 2)
if was_told(ARGV[5]) or not f[1] or FINAL[f[1]] or f[2] ~= was or (new and f[3]) then
  return 0
end
keep_mark(ARGV[2], f[4], new)
tell(ARGV[5])
reckon(ARGV[2])
announce()
return 1
