-- Looks among some runs of a status for the one whose newest checkpoint this is; returns it, and how many it saw.
-- ARGV: status, checkpoint, where to begin, how many.
local from, many = tonumber(ARGV[4]), tonumber(ARGV[5])
local page = redis.call('ZRANGE', P .. 'status:' .. ARGV[2], from, from + many - 1)
for _, run_id in ipairs(page) do
  if redis.call('HGET', row_of(run_id), 'id') == ARGV[3] then
    return { run_id, #page }
  end
end
return { false, #page }
