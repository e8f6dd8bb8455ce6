-- Removes artifacts that were not put for so long, and returns them. ARGV: how long, digests.
local latest, gone = tonumber(clock()) - tonumber(ARGV[2]), {}
for k = 3, #ARGV do
  local touched = redis.call('ZSCORE', P .. 'blobs:touched', ARGV[k])
  if touched and tonumber(touched) <= latest then
    redis.call('UNLINK', P .. 'blob:' .. ARGV[k])
    redis.call('ZREM', P .. 'blobs', ARGV[k])
    redis.call('ZREM', P .. 'blobs:touched', ARGV[k])
    gone[#gone + 1] = ARGV[k]
  end
end
return gone
