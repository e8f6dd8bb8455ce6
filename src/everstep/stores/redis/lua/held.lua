-- Returns which runs are paused, with their marks, and what is kept of the flows and groups that are. ARGV: runs.
local runs = {}
for k = 2, #ARGV do
  local f = redis.call('HMGET', row_of(ARGV[k]), 'repair', 'status')
  if is_pause(f[1], f[2]) then
    runs[#runs + 1] = { ARGV[k], f[1] }
  end
end
return { runs, redis.call('HVALS', P .. 'pauses') }
