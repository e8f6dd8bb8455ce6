-- Asks the owner of an unfinished run to stop; returns whether it did. ARGV: run, what is wanted, a note or nothing, the
-- sequence of its newest record or nothing, a row of the audit log.
-- The fields have the names by which earlier releases know them.
-- A run that is paused is so no longer: workers end it.
local f = redis.call('HMGET', row_of(ARGV[2]), 'status', 'head', 'repair')
if was_told(ARGV[6]) or not f[1] or FINAL[f[1]] or (ARGV[5] ~= '' and f[2] ~= ARGV[5]) then
  return 0
end
if is_pause(f[3], f[1]) then
  keep_mark(ARGV[2], nil, nil)
end
redis.call('HSET', row_of(ARGV[2]), 'signal', ARGV[3])
if ARGV[4] and ARGV[4] ~= '' then
  redis.call('HSET', row_of(ARGV[2]), 'signal_note', ARGV[4])
else
  redis.call('HDEL', row_of(ARGV[2]), 'signal_note')
end
tell(ARGV[6])
reckon(ARGV[2])
announce()
return 1
