-- Asks the owner of an unfinished run to stop; returns whether it did. ARGV: run, what is wanted, a note or nothing, a row
-- of the audit log.
-- The fields have the names by which earlier releases know them.
local status = redis.call('HGET', row_of(ARGV[2]), 'status')
if not status or FINAL[status] then
  return 0
end
redis.call('HSET', row_of(ARGV[2]), 'signal', ARGV[3])
if ARGV[4] and ARGV[4] ~= '' then
  redis.call('HSET', row_of(ARGV[2]), 'signal_note', ARGV[4])
else
  redis.call('HDEL', row_of(ARGV[2]), 'signal_note')
end
tell(ARGV[5])
reckon(ARGV[2])
announce()
return 1
